"""A person's ledger: what adds up, what is free, what is refused, and what survives a crash."""

import contextlib
import json
import os
import resource
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from coatcheck.accounting.amplification import Guarantee, amplify, calibrate
from coatcheck.accounting.composition import compose
from coatcheck.accounting.laws import AnyLdp, OwnCoin, minkowski
from coatcheck.accounting.ledger import Ledger
from coatcheck.errors import Misuse, Refused, Unavailable


def promise(epsilon: float = 3.0, crowd: int = 2000) -> Guarantee:
    """Give the guarantee of a usual round."""
    return amplify(minkowski(epsilon, radius=0.6, dimension=2), crowd=crowd, delta=1e-6)


def test_rounds_add_up_as_composition_says(tmp_path: Path) -> None:
    """Spent is hardly above the composed ε of the entries, the same when opened again."""
    book = Ledger.open(tmp_path / "mine", epsilon=3.0, delta=1e-6)
    assert book.spent == 0.0
    assert book.left == 3.0
    for number in range(4):
        total = book.spend(promise(), round_id=f"r{number}", digest=b"d")
    direct = compose(promise().law, crowd=2000, delta=1e-6, rounds=4)
    assert direct <= total <= 1.02 * direct  # the price of terms that may depend on the past
    again = Ledger.open(tmp_path / "mine")
    assert again.spent == total
    assert again.left == pytest.approx(3.0 - total)
    assert again.rounds == ("r0", "r1", "r2", "r3")
    assert again.limit == (3.0, 1e-6)


def test_a_round_that_promises_the_limit_fits(tmp_path: Path) -> None:
    """The grid of losses does not cost a person the one round that the limit was meant for."""
    make = partial(minkowski, radius=0.5, dimension=2)
    promised = calibrate(make, epsilon=1.0, crowd=3000, delta=1e-6)
    book = Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-6)
    assert book.spend(promised, round_id="r") <= 1.0


def test_composition_is_below_the_sum(tmp_path: Path) -> None:
    """Nine equal rounds cost about three times one of them, not nine times."""
    book = Ledger.open(tmp_path / "mine", epsilon=5.0, delta=1e-6)
    one = book.spend(promise(), round_id="0")
    for number in range(1, 9):
        total = book.spend(promise(), round_id=str(number))
    assert 2 * one < total < 4.5 * one


def test_spend_refuses_before_anything_is_written(tmp_path: Path) -> None:
    """A round that would pass the limit leaves the file as it was, byte for byte."""
    book = Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-6)
    book.spend(promise(), round_id="fits")
    before = (tmp_path / "mine").read_bytes()
    with pytest.raises(Refused, match="above the limit"):
        book.spend(promise(epsilon=6.0, crowd=50), round_id="too much")
    assert (tmp_path / "mine").read_bytes() == before
    assert book.rounds == ("fits",)


def test_the_same_report_again_is_free(tmp_path: Path) -> None:
    """Re-sending stored bytes costs nothing; another draw for the same round is refused."""
    book = Ledger.open(tmp_path / "mine", epsilon=1.0, delta=1e-6)
    once = book.spend(promise(), round_id="r", digest=b"same")
    assert book.spend(promise(), round_id="r", digest=b"same") == once
    assert book.rounds == ("r",)
    with pytest.raises(Refused, match="second spend"):
        book.spend(promise(), round_id="r", digest=b"other")
    with pytest.raises(Refused, match="second spend"):
        book.spend(promise(), round_id="r")


def test_reused_keys_count_as_one_large_report(tmp_path: Path) -> None:
    """Two rounds under one key cost 2ε among those who are linked alike, here nobody else."""
    book = Ledger.open(tmp_path / "mine", epsilon=8.0, delta=1e-6)
    small = promise(epsilon=1.0)
    book.spend(small, round_id="a", key=b"k")
    apart = Ledger.open(tmp_path / "apart", epsilon=8.0, delta=1e-6)
    apart.spend(small, round_id="a", key=b"k")
    linked = book.spend(small, round_id="b", key=b"k")
    assert linked == pytest.approx(2.0, abs=0.02)
    assert apart.spend(small, round_id="b", key=b"l") < 0.5
    crowd = Ledger.open(tmp_path / "crowd", epsilon=8.0, delta=1e-6)
    crowd.spend(small, round_id="a", key=b"k", together=1500)
    whole = crowd.spend(small, round_id="b", key=b"k", together=1500)
    known = amplify(AnyLdp(epsilon=2.0), crowd=1500, delta=1e-6).epsilon
    assert whole == pytest.approx(known, rel=0.02)


def test_own_coins_and_methods_are_kept(tmp_path: Path) -> None:
    """Silence is entered with its rate; a guarantee by the generic method is entered as such."""
    coin = OwnCoin(law=AnyLdp(epsilon=3.0), rate=0.25)
    book = Ledger.open(tmp_path / "mine", epsilon=4.0, delta=1e-6)
    silent = book.spend(amplify(coin, crowd=4000, delta=1e-6), round_id="a")
    assert silent == pytest.approx(amplify(coin, crowd=4000, delta=1e-6).epsilon, rel=0.02)
    law = minkowski(3.0, radius=1.0, dimension=2)
    other = Ledger.open(tmp_path / "other", epsilon=4.0, delta=1e-6)
    generic = amplify(law, crowd=4000, delta=1e-6, method="generic")
    assert other.spend(generic, round_id="a") == pytest.approx(generic.epsilon, rel=0.02)


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
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
    """If the machine stops before the new file is in place, the old one stands and still works."""
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
    """Whatever share of the new file fits, spending fails aloud and the old file still works."""
    book = Ledger.open(tmp_path / "mine", epsilon=5.0)
    book.spend(promise(), round_id="a", digest=b"a")
    before = (tmp_path / "mine").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(Unavailable, match="make room"):
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


def test_two_programs_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    """Of many processes at once just as many succeed as the limit has room for."""
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
    codes = [process.wait(timeout=120) for process in started]
    assert sorted(codes) == [0] * fits + [1] * (6 - fits)
    assert len(Ledger.open(tmp_path / "mine").rounds) == fits


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"epsilon": "1"},
        {"epsilon": -1.0},
        {"delta": 2.0},
        {"surprise": 1},
        {"entries": [{"round": "a"}]},
        {"entries": [{"round": "a", "digest": "", "kind": "any-ldp", "epsilon": -1.0, "crowd": 5}]},
        {"entries": [{"round": "a", "digest": "", "kind": "any-ldp", "epsilon": 1.0, "crowd": 0}]},
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """Unknown version, field, type or an impossible entry: no ledger, rather than a guess."""
    Ledger.open(tmp_path / "mine", epsilon=1.0)
    plain = json.loads((tmp_path / "mine").read_text())
    (tmp_path / "mine").write_text(json.dumps(plain | change))
    with pytest.raises(Refused, match="restore a copy"):
        Ledger.open(tmp_path / "mine")


def test_mistakes_get_a_sentence(tmp_path: Path) -> None:
    """No file and no limit, another limit, a nameless round."""
    with pytest.raises(Misuse, match="no ledger"):
        Ledger.open(tmp_path / "none")
    with pytest.raises(Misuse, match="positive epsilon"):
        Ledger.open(tmp_path / "none", epsilon=0.0)
    book = Ledger.open(tmp_path / "mine", epsilon=1.0)
    with pytest.raises(Refused, match="has a limit"):
        Ledger.open(tmp_path / "mine", epsilon=2.0)
    with pytest.raises(Misuse, match="name"):
        book.spend(promise(), round_id="")
    with pytest.raises(Misuse, match="yourself"):
        book.spend(promise(), round_id="r", together=0)
