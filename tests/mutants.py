"""Mutation testing: change one thing in a module, run its tests, and see whether they notice.

    python tests/mutants.py --count 100 --seed 1         random mutants over all the modules
    python tests/mutants.py --module client --all        every mutant of one module

`make mutants` runs it. Each worker has a copy of the repository of its own, so the tree that you
work on is never changed. A mutant that no test notices is printed with its line: it is a missing
test, or a change that means nothing.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
LIMIT = 300
"""Seconds after which the tests of a mutant are ended: a loop that never stops is noticed too."""

WORLD = "tests/world tests/test_simulation.py"
MODULES = {
    "protocol/client": "tests/test_client.py tests/test_hostile_terms.py tests/test_visit.py"
    f" {WORLD}",
    "protocol/shuffler": f"tests/test_shuffler.py {WORLD} tests/stores",
    "protocol/server": f"tests/test_server.py {WORLD}",
    "protocol/moves": "tests/test_shuffler.py tests/test_server.py tests/stores",
    "protocol/agreement": "tests/test_terms.py tests/test_split_terms.py tests/test_client.py",
    "protocol/verification": "tests/test_board.py tests/test_client.py",
    "accounting/ledger": "tests/test_ledger.py tests/test_client.py",
    "accounting/budget": "tests/test_budget.py tests/test_ledger.py",
    "services/shuffler/intake": "tests/services/test_intake.py",
    "accounting/amplification": "tests/test_amplification.py tests/test_soundness.py"
    " tests/test_laws.py",
    "randomizers/mixing": "tests/randomizers tests/contracts/test_every_randomizer.py",
    "randomizers/caps": "tests/randomizers tests/contracts/test_every_randomizer.py",
}
"""The modules on which a person's privacy rests most, and the tests that are about them."""

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in",
    "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and", "not": "",
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "**": "*",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two offsets of a module becomes another."""

    module: str
    line: int
    start: int
    end: int
    text: str
    kind: str


def mutants_of(module: str) -> list[Mutant]:
    """List every change that is tried on a module."""
    source = _path(ROOT, module).read_text("utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def at(line: int, column: int) -> int:
        # The syntax tree counts columns in bytes of UTF-8.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def begin(node: ast.expr | ast.stmt) -> int:
        return at(node.lineno, node.col_offset)

    def end(node: ast.expr | ast.stmt) -> int:
        return at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    found = []
    for node in _code(ast.parse(source)):
        for first, last, text, kind in _changes(node, begin, end):
            before = source[first:last]
            after = _swapped(before) if text is None else text
            if before != after:
                found.append(Mutant(module, node.lineno, first, last, after, kind))  # type: ignore[attr-defined]
    return found


def _swapped(gap: str) -> str:
    """Replace the operator between two operands, and keep brackets and spaces around it."""
    operator = gap.strip(" ()\n")
    return gap.replace(operator, SWAPS[operator], 1) if operator in SWAPS else gap


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over what runs: no annotations, docstrings, printed texts or imports."""
    skipped = (ast.Import, ast.ImportFrom, ast.arg, ast.JoinedStr)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, skipped):
                continue
            if name in {"annotation", "returns"} or _says_nothing(child):
                continue
            yield child
            yield from _code(child)


def _says_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in {"__repr__", "__rich_repr__"}
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node, begin, end) -> Iterator[tuple[int, int, str | None, str]]:  # type: ignore[no-untyped-def] # the two offsets of mutants_of
    """Give the places to change; None stands for the operator's counterpart."""
    if isinstance(node, ast.Compare):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            yield end(left), begin(right), None, "comparison"
    elif isinstance(node, ast.BoolOp):
        yield end(node.values[0]), begin(node.values[1]), None, "logic"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield begin(node), begin(node.operand), None, "negation"
    elif isinstance(node, ast.BinOp):
        yield end(node.left), begin(node.right), None, "arithmetic"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield begin(node), end(node), str(not node.value), "constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield begin(node), end(node), f"{node.value + 1!r}", "constant"
    elif isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body):
        yield begin(node.test), end(node.test), "False", "guard"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield begin(node), end(node), "pass", "call"


def _path(root: Path, module: str) -> Path:
    return root / "src" / "coatcheck" / f"{module}.py"


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Run the module's tests on a copy with the change in it."""
    path = _path(copy, mutant.module)
    source = path.read_text("utf-8")
    path.write_text(source[: mutant.start] + mutant.text + source[mutant.end :], "utf-8")
    # A seedless search would let a mutant live or die by luck from run to run.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += ["--hypothesis-seed=1", *MODULES[mutant.module].split()]
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and tests
            command, cwd=copy, env=env, capture_output=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(source, "utf-8")
    return done.returncode != 0


def run(mutants: list[Mutant], *, jobs: int) -> dict[Mutant, bool]:
    """Try mutants side by side, each worker on a copy of the repository."""
    verdicts: dict[Mutant, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        kept = shutil.ignore_patterns(".git", ".venv", "__pycache__", "node_modules", "build")
        for number in range(jobs):
            copies.put(Path(shutil.copytree(ROOT, Path(folder) / str(number), ignore=kept)))

        def one(mutant: Mutant) -> None:
            copy = copies.get()
            verdicts[mutant] = is_killed(mutant, copy)
            copies.put(copy)
            told = "killed " if verdicts[mutant] else "SURVIVED"
            print(
                f"{told} {mutant.module}:{mutant.line} {mutant.kind} -> {mutant.text.strip()}",
                flush=True,
            )

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, mutants))
    return verdicts


def main() -> int:
    """Try mutants and print a table, one row per module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--module", action="append", help="only modules whose name has this in it")
    parser.add_argument("--all", action="store_true", help="every mutant, not a random choice")
    parser.add_argument("--json", type=Path, help="write each verdict to this file")
    asked = parser.parse_args()
    names = [name for name in MODULES if not asked.module or any(m in name for m in asked.module)]
    mutants = [mutant for name in names for mutant in mutants_of(name)]
    if not asked.all and len(mutants) > asked.count:
        mutants = random.Random(asked.seed).sample(mutants, asked.count)  # noqa: S311 - a choice of tests
    verdicts = run(mutants, jobs=asked.jobs)
    print("\n| module | mutants | killed |\n|---|---|---|")
    for name in names:
        mine = [killed for mutant, killed in verdicts.items() if mutant.module == name]
        print(f"| {name} | {len(mine)} | {sum(mine)} |")
    print(f"| all | {len(verdicts)} | {sum(verdicts.values())} |")
    if asked.json:
        rows = [asdict(mutant) | {"killed": killed} for mutant, killed in verdicts.items()]
        asked.json.write_text(json.dumps(rows, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
