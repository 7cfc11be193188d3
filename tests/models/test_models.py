"""Crashes and races: Spin searches every interleaving of the roles' state machines.

Each model holds. With each bug that coatcheck once had, or that a rule of SPEC prevents, the search
finds what the bug breaks. docs/explanation/testing.md says what the models leave out.
"""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from models.models import HERE, Added, search, tables

has_spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("gcc")), reason="Spin and gcc are not installed"
)
MODELS = {
    "store.pml": ["KEY_LOSS"],
    "round.pml": [],
    "intake.pml": [],
    "log.pml": [],
    "person.pml": [],
    "refresh.pml": [],
}
"""The models, with what may happen in their world."""
MERGED = {"done = 0", "done = 1", "(1)", "-end-", "((phase==1))", "else"}
"""Statements that Spin merges with the one before, or that only mark an end."""
KEPT_KEY = {"keys = (keys+1)", "batch_key = 0"}
"""A release that gathers has its key: the model loses none then."""


@dataclass(frozen=True)
class Bug:
    """A bug, how to bring it back, and the assertion that then fails."""

    model: str
    switches: tuple[str, ...]
    fails: str
    added: Added = field(default_factory=dict)


BUGS = {
    "keys were listed before files, and new files counted as leftovers": Bug(
        "store.pml", ("LEFTOVERS_KEYS_FIRST",), "((fence!=token)||(phase!=2))"
    ),
    "files that a process makes again were removed as leftovers": Bug(
        "store.pml", ("LEFTOVERS_OF_A_LATER_PHASE", "KEY_LOSS"), "((fence!=token)||(phase!=2))"
    ),
    "zeros in the place of a destroyed key were a key": Bug(
        "store.pml", ("ZEROS_ARE_A_KEY",), "(key!=99)"
    ),
    "a leader that lost its lease took the key of the next one": Bug(
        "store.pml", ("KEY_AFTER_THE_MOVE",), "((fence!=token)||(phase!=2))"
    ),
    "a late worker put older files in the place of newer ones": Bug(
        "store.pml", ("NAMES_WITHOUT_COUNT",), "(items>=2)"
    ),
    "files under a lost key counted as made": Bug(
        "store.pml", ("FILES_OF_A_LOST_KEY", "KEY_LOSS"), "((fence!=token)||(phase!=2))"
    ),
    "a batch that came at the last moment was thrown away": Bug(
        "round.pml",
        (),
        "!(((server_accepted&&has_key)&&(server==5)))",
        {("server", "batched", "abandon"): "abandoned"},
    ),
    "a server that listed keys before files lost its batch": Bug(
        "intake.pml", ("LEFTOVERS_KEYS_FIRST",), "((phase!=2)||(part==round_key))"
    ),
    "a batch counted as taken although its partitions had lost their key": Bug(
        "intake.pml", ("ACCEPTED_AFTER_A_LOSS",), "((phase!=2)||(part==round_key))"
    ),
    "a server that lost its key signed against its own bulletin": Bug(
        "round.pml", ("LOSE_WITHOUT_ASKING",), "!(((shown==1)&&(server==5)))"
    ),
    "a later outcome replaced the first one": Bug(
        "round.pml", ("LAST_OUTCOME_COUNTS",), "((shown==0)||(shown==4))"
    ),
    "a board that led again showed the note of its earlier term": Bug(
        "log.pml", ("NOTE_OF_AN_EARLIER_TERM",), "(cosigned>=note)"
    ),
    "a board did not sign for a commit whose answer was lost": Bug(
        "log.pml", ("COMMIT_WITHOUT_ANSWER",), "(seen>=sent)"
    ),
    "two programs of one person stored a new ticket each": Bug(
        "person.pml", ("TICKET_WITHOUT_LOCK",), "(reports==1)"
    ),
    "two programs of one person used one counter for two letters": Bug(
        "person.pml", ("COUNTER_WITHOUT_LOCK",), "!(used[number])"
    ),
    "a program took a newer checkpoint back": Bug(
        "person.pml", ("CHECKPOINT_AS_FETCHED",), "(fetched>=stored)"
    ),
    "a slow look at the store put a round back into an earlier phase": Bug(
        "refresh.pml", ("STALE_READING",), "(phase>=held)"
    ),
    "a look that began later and read earlier put a round back": Bug(
        "refresh.pml", ("ORDER_OF_BEGINNING",), "(phase>=held)"
    ),
}


@has_spin
@pytest.mark.world
@pytest.mark.parametrize("model", MODELS)
def test_a_model_holds(model: str, tmp_path: Path) -> None:
    """No interleaving breaks an assertion or stops for ever, and every statement is reached."""
    result = search(model, tmp_path, MODELS[model])
    assert not result.error
    assert result.states > 1000
    unreached = {statement for _, statement in result.unreached}
    assert unreached <= MERGED | (KEPT_KEY if model == "store.pml" else set())


@has_spin
@pytest.mark.world
@pytest.mark.parametrize("bug", BUGS)
def test_a_known_bug_is_found(bug: str, tmp_path: Path) -> None:
    """The search finds what the bug broke: so it can fail."""
    broken = BUGS[bug]
    result = search(broken.model, tmp_path, broken.switches, broken.added)
    assert result.error.replace(" ", "") == f"assertionviolated{broken.fails}".replace(" ", "")


@has_spin
@pytest.mark.slow
def test_the_store_holds_with_one_more_change_of_leaders(tmp_path: Path) -> None:
    """A process leads, another one, and the first again."""
    assert not search("store.pml", tmp_path, ["KEY_LOSS", "TOKENS=3"]).error


def test_every_transition_is_in_a_model() -> None:
    """A transition that is added to a table must be added to a model, too."""
    text = "".join((HERE / model).read_text(encoding="utf-8") for model in MODELS)
    made = re.findall(r"^inline (\w+)\(", tables(), re.MULTILINE)
    assert len(made) == 19
    assert [name for name in made if f"{name}(" not in text] == []


def test_every_switch_is_a_known_bug() -> None:
    """No bug in a model is left untried."""
    tried = {switch for bug in BUGS.values() for switch in bug.switches} | {"TOKENS"}
    for model in MODELS:
        text = (HERE / model).read_text(encoding="utf-8")
        named = re.findall(r"#ifn?def (\w+)|defined\((\w+)\)", text)
        assert {first or second for first, second in named} <= tried
