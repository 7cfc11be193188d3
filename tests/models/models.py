"""Promela models of the roles' state machines, made from the tables that the roles execute.

`tables` writes the transitions of both roles, and which key a round needs in each phase.
The models beside this file include them. `search` has Spin try all interleavings of a model, and
returns what it found wrong. A switch brings a bug back.
"""

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from coatcheck.services.server.store import ServerStore
from coatcheck.services.shuffler.store import ShufflerStore

HERE: Final = Path(__file__).parent
STORES: Final[dict[str, Any]] = {"shuffler": ShufflerStore, "server": ServerStore}
Added = Mapping[tuple[str, str, str], str]
"""Transitions that a bug adds: role, phase and transition, and the next phase."""


def tables(added: Added | None = None) -> str:
    """Write the tables of both roles as Promela."""
    lines = ["/* Made by tests/models/models.py from the tables that the roles execute. */"]
    for role, store in STORES.items():
        moves = store.moves
        names = {phase: f"{role}_{phase.name}".upper() for phase in moves.phases}
        lines += [f"#define {name} {number}" for number, name in enumerate(names.values())]
        arrows = [(before.name, move, after.name) for before, move, after in moves]
        arrows += [
            (before.upper(), move, after.upper())
            for (of, before, move), after in (added or {}).items()
            if of == role
        ]
        for move in dict.fromkeys(move for _, move, _ in arrows):
            lines += _move(role, move, [(a, b) for a, name, b in arrows if name == move])
        having = {use: {p for p, key in store.needs.items() if key == use} for use in _USES}
        allowed = {use: {p for p, key in store.may.items() if key == use} for use in _USES}
        for use in _USES:
            ahead = {p for p in moves.phases if moves.ahead(p) & (having[use] | allowed[use])}
            for kind, phases in (("NEEDS", having[use]), ("MAY", allowed[use]), ("AHEAD", ahead)):
                lines.append(_one_of(f"{role}_{kind}_{use}", [names[phase] for phase in phases]))
        lines.append(_one_of(f"{role}_WORKING", [names[phase] for phase in store.working]))
    return "\n".join([*lines, ""])


_USES: Final = ("round", "batch")


def _move(role: str, move: str, arrows: Iterable[tuple[str, str]]) -> list[str]:
    """Write a transition: it sets `done` if the phase allows it, and changes nothing if not."""
    branches = [
        f"\t:: phase == {role.upper()}_{a} -> phase = {role.upper()}_{b}; done = true"
        for a, b in arrows
    ]
    head = f"inline {role}_{move}(phase, done)"
    return [head, "{", "\tif", *branches, "\t:: else -> done = false", "\tfi", "}"]


def _one_of(name: str, phases: Iterable[str]) -> str:
    """Write a macro: whether a phase is one of these."""
    test = " || ".join(f"(phase) == {phase}" for phase in sorted(phases)) or "false"
    return f"#define {name.upper()}(phase) ({test})"


class Result(NamedTuple):
    """What a search found.

    Attributes:
        error: the first assertion that fails; empty if none does.
        unreached: the statements that no interleaving reaches.
        states: how many states there are.
    """

    error: str
    unreached: list[tuple[str, str]]
    states: int


def search(
    model: str, folder: Path, switches: Collection[str] = (), added: Added | None = None
) -> Result:
    """Search all states of a model, or up to the first error."""
    (folder / "tables.pml").write_text(tables(added), encoding="utf-8")
    (folder / model).write_text((HERE / model).read_text(encoding="utf-8"), encoding="utf-8")
    _run(["spin", "-a", *(f"-D{switch}" for switch in switches), model], folder)
    # There are assertions only, and no cycles to look for: that makes the search quick.
    _run(["gcc", "-O2", "-w", "-DSAFETY", "-DNOCLAIM", "-o", "pan", "pan.c"], folder)
    text = _run(["./pan", "-m100000"], folder)
    assert "max search depth too small" not in text, text
    assert "error: " not in text.replace("errors: ", ""), text
    (states,) = re.findall(r"(\d+) states, stored", text)
    return Result(
        "".join(re.findall(r"^pan:1: (.+) \(at depth", text, re.MULTILINE)),
        re.findall(r"^\t(\S+:\d+), state \d+, \"(.+)\"", text, re.MULTILINE),
        int(states),
    )


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - Spin, gcc, and the program that they make
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout
