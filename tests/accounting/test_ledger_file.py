"""The ledger's file: permissions, crashes, full disks, two programs at once, damage."""

import contextlib
import json
import math
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.accounting import ledger as of_ledger
from coatcheck.accounting.amplification import Guarantee, amplify
from coatcheck.accounting.laws import AnyLdp, minkowski
from coatcheck.accounting.ledger import Ledger, exclusive
from coatcheck.errors import Misuse, Refused, Unavailable


def promise(epsilon: float = 3.0, crowd: int = 2000) -> Guarantee:
    """Return the guarantee of a usual round."""
    return amplify(minkowski(epsilon, radius=0.6, dimension=2), crowd=crowd, delta=1e-6)


def test_a_file_is_opened_again_with_its_own_limit(tmp_path: Path) -> None:
    """The same limit or none opens it; another δ alone is refused; one person counts."""
    Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-5)
    assert Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-5).limit == (1.0, 1e-5)
    with pytest.raises(Refused, match="has a limit"):
        Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-6)
    book = Ledger.open(tmp_path / "mine")
    book.spend(amplify(AnyLdp(epsilon=0.5), crowd=1, delta=1e-6), round_id="a")
    assert Ledger.open(tmp_path / "mine").rounds == ("a",)
    assert stat.S_IMODE((tmp_path / "mine.lock").stat().st_mode) == 0o600


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """The file has mode 0600 whatever the umask, and one that others may read is refused."""
    old = os.umask(0)
    try:
        book = Ledger.open(tmp_path / "mine", epsilon=1.0)
        book.spend(promise(), round_id="r")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o600
    (tmp_path / "mine").chmod(0o644)
    with pytest.raises(Refused, match="chmod 600"):
        Ledger.open(tmp_path / "mine")


def test_a_crash_while_writing_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the machine stops before the new file is in place, the old one remains valid."""
    book = Ledger.open(tmp_path / "mine", epsilon=2.0)
    book.spend(promise(), round_id="a")
    before = (tmp_path / "mine").read_bytes()

    def crash(_handle: int) -> None:
        raise OSError("power")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", crash)
        with pytest.raises(Unavailable, match="power"):
            book.spend(promise(), round_id="b")
    assert (tmp_path / "mine").read_bytes() == before
    assert Ledger.open(tmp_path / "mine").spend(promise(), round_id="b") > 0


@pytest.mark.parametrize("room", [0, 50, 300])
def test_a_disk_that_takes_a_part_only_keeps_the_old_file(tmp_path: Path, room: int) -> None:
    """Whatever share of the new file fits, spending raises an error and the old file works."""
    book = Ledger.open(tmp_path / "mine", epsilon=5.0)
    book.spend(promise(), round_id="a", digest=b"a")
    before = (tmp_path / "mine").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(Unavailable, match="free some space"):
            book.spend(promise(), round_id="b", digest=b"b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "mine").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.lock"]
    assert Ledger.open(tmp_path / "mine").rounds == ("a",)
    book.spend(promise(), round_id="b", digest=b"b")
    assert Ledger.open(tmp_path / "mine").rounds == ("a", "b")


SPEND_ONE = """
import sys
from coatcheck.accounting.amplification import amplify
from coatcheck.errors import Refused
from coatcheck.accounting.laws import minkowski
from coatcheck.accounting.ledger import Ledger

promise = amplify(minkowski(3.0, radius=0.6, dimension=2), crowd=2000, delta=1e-6)
try:
    Ledger.open(sys.argv[1]).spend(promise, round_id=sys.argv[2])
except Refused:
    sys.exit(1)
"""


def test_two_programs_cannot_begin_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one does not overwrite the first one's file."""
    path = tmp_path / "mine"

    @contextlib.contextmanager
    def after_another(where: Path) -> Iterator[None]:
        with exclusive(where):
            path.write_bytes(b"another program's")
            yield

    monkeypatch.setattr(of_ledger, "exclusive", after_another)
    with pytest.raises(Refused, match="just created"):
        Ledger.open(path, epsilon=1.0)
    assert path.read_bytes() == b"another program's"


def test_two_programs_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    """Of many simultaneous processes exactly as many succeed as the limit has room for."""
    alone = Ledger.open(tmp_path / "alone", epsilon=0.7)
    with contextlib.suppress(Refused):
        for number in range(8):
            alone.spend(promise(), round_id=str(number))
    fits = len(alone.rounds)
    assert 1 <= fits < 6
    Ledger.open(tmp_path / "mine", epsilon=0.7)
    started = [
        subprocess.Popen([sys.executable, "-c", SPEND_ONE, str(tmp_path / "mine"), str(number)])  # noqa: S603 - ours
        for number in range(6)
    ]
    codes = [process.wait(timeout=600) for process in started]
    assert sorted(codes) == [0] * fits + [1] * (6 - fits)
    assert len(Ledger.open(tmp_path / "mine").rounds) == fits


ENTRY = {"round": "a", "digest": "", "kind": "any-ldp", "epsilon": 1.0, "crowd": 5}


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"epsilon": "1"},
        {"epsilon": -1.0},
        {"delta": 2.0},
        {"delta": 1.0},
        {"delta": 0.0},
        {"epsilon": 0.0},
        {"surprise": 1},
        {"entries": [{"round": "a"}]},
        {"entries": [{"round": "a", "digest": "", "kind": "any-ldp", "epsilon": -1.0, "crowd": 5}]},
        {"entries": [{"round": "a", "digest": "", "kind": "any-ldp", "epsilon": 1.0, "crowd": 0}]},
        {"entries": [ENTRY | {"end": "lost"}]},
        {"entries": [ENTRY | {"by_itself": 1}]},
        {"entries": [ENTRY | {"disclosures": -1}]},
        {"entries": [ENTRY | {"rate": 0.0}]},
        {"entries": [ENTRY | {"kind": "two-level", "cap": 0.9, "apart": 0.9}]},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """An unknown version, field or type, or an impossible entry, is refused."""
    Ledger.open(tmp_path / "mine", epsilon=1.0)
    plain = json.loads((tmp_path / "mine").read_text())
    (tmp_path / "mine").write_text(json.dumps(plain | change))
    with pytest.raises(Refused, match="restore it from a backup"):
        Ledger.open(tmp_path / "mine")


def test_omitted_fields_of_an_entry_have_safe_defaults(tmp_path: Path) -> None:
    """A round counts by itself, with its local ε, and everybody reports."""
    spent = []
    for name, more in (("short", {}), ("long", {"by_itself": True, "end": "", "rate": 1.0})):
        path = tmp_path / name
        Ledger.open(path, epsilon=2.5)
        entries = [ENTRY | {"round": one, "crowd": 2} | more for one in "ab"]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"entries": entries}))
        spent.append(Ledger.open(path).spent)
    assert spent[0] == spent[1] == 2.0


def test_mistakes_are_errors(tmp_path: Path) -> None:
    """No file and no limit, another limit, and a round without a name are errors."""
    with pytest.raises(Misuse, match="no ledger"):
        Ledger.open(tmp_path / "none")
    for wrong in (0.0, math.inf, math.nan, "1"):
        with pytest.raises(Misuse, match="positive number"):
            Ledger.open(tmp_path / "none", epsilon=wrong)  # type: ignore[arg-type]
    for wrong in (0.0, 1.0, 1e-16, math.nan, "1"):
        with pytest.raises(Misuse, match="`delta` must"):
            Ledger.open(tmp_path / "none", epsilon=1.0, delta=wrong)  # type: ignore[arg-type]
    book = Ledger.open(tmp_path / "mine", epsilon=1.0)
    with pytest.raises(Refused, match="has a limit"):
        Ledger.open(tmp_path / "mine", epsilon=2.0)
    with pytest.raises(Misuse, match="round_id"):
        book.spend(promise(), round_id="")
    with pytest.raises(Misuse, match="not in"):
        book.record_outcome("unknown")


def test_an_old_copy_of_the_file_is_refused(tmp_path: Path) -> None:
    """A program that has seen a round does not go on with a file that lost it."""
    path = tmp_path / "mine"
    book = Ledger.open(path, epsilon=3.0)
    old = path.read_bytes()
    book.spend(promise(), round_id="a")
    spent = book.spent
    path.write_bytes(old)
    with pytest.raises(Refused, match="no longer has round a"):
        book.spend(promise(), round_id="b")
    with pytest.raises(Refused, match="no longer has round a"):
        book.record_outcome("a")
    assert book.spent == spent
