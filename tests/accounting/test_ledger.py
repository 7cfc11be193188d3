"""A person's ledger: sums, free retries, refusals and crashes."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from coatcheck.accounting.amplification import Guarantee, amplify, calibrate
from coatcheck.accounting.composition import compose
from coatcheck.accounting.guarantee import Disclosure
from coatcheck.accounting.laws import AnyLdp, Channel, Fieldwise, OwnCoin, grid, minkowski
from coatcheck.accounting.ledger import Ledger
from coatcheck.errors import Refused


def promise(epsilon: float = 3.0, crowd: int = 2000) -> Guarantee:
    """Return the guarantee of a usual round."""
    return amplify(minkowski(epsilon, radius=0.6, dimension=2), crowd=crowd, delta=1e-6)


def first(told: Guarantee) -> float:
    """Give what a ledger reads after one round: its ε at a twentieth of δ, kept for that moment."""
    small = told.delta / 20
    return amplify(told.law, crowd=told.anonymous, delta=small, method=told.method).epsilon


def test_rounds_add_up_as_composition_says(tmp_path: Path) -> None:
    """The spent ε is slightly above the composed ε of the entries, as it is always valid."""
    book = Ledger.open(tmp_path / "mine", epsilon=3.0, delta=1e-6)
    assert book.spent == 0.0
    assert book.left == 3.0
    for number in range(4):
        total = book.spend(promise(), round_id=f"r{number}", digest=b"d")
    direct = compose(promise().law, crowd=2000, delta=1e-6, rounds=4)
    assert direct <= total <= 1.5 * direct  # the price of holding at every moment
    again = Ledger.open(tmp_path / "mine")
    assert again.spent == total
    assert 3.0 - total < again.left < 3.0  # costs are added like squares
    assert again.rounds == ("r0", "r1", "r2", "r3")
    assert again.limit == (3.0, 1e-6)


def test_what_is_left_fits(tmp_path: Path) -> None:
    """A round that costs nine tenths of the remainder is accepted; twice as much is not."""
    for share, taken in ((0.9, True), (2.0, False)):
        book = Ledger.open(tmp_path / f"{share}", epsilon=1.0)
        book.spend(promise(), round_id="first")
        cost = share * book.left
        make = partial(minkowski, radius=0.6, dimension=2)
        calibrated = calibrate(make, epsilon=cost, crowd=2000, delta=1e-6)
        if taken:
            book.spend(calibrated, round_id="second")
            assert book.left < 0.5
        else:
            with pytest.raises(Refused, match="above the limit"):
                book.spend(calibrated, round_id="second")


def test_a_round_that_was_refused_costs_its_local_epsilon(tmp_path: Path) -> None:
    """Recorded once or twice, it costs its local ε besides, and never less later."""
    book = Ledger.open(tmp_path / "mine", epsilon=9.0)
    for number in range(3):
        before = book.spend(promise(), round_id=str(number))
    assert book.record_outcome("0", answered=True) == before
    total = book.record_outcome("1")
    assert total == pytest.approx(before + 3.0)
    for answered in (False, True):
        assert book.record_outcome("1", answered=answered) == total
    assert Ledger.open(tmp_path / "mine").spent == total
    assert book.rounds == ("0", "1", "2")


def test_candidates_who_learn_an_answer_are_counted(tmp_path: Path) -> None:
    """The ledger adds up what letters may tell, which no ε covers."""
    book = Ledger.open(tmp_path / "mine", epsilon=3.0)
    spent = book.spend(promise(), round_id="silent")
    assert book.disclosures == 0
    told = replace(promise(), letters=Disclosure(candidates=10, cells=69))
    book.spend(told, round_id="letters")
    book.spend(told, round_id="again")
    assert book.disclosures == Ledger.open(tmp_path / "mine").disclosures == 20
    assert "at most 20" in book._repr_html_()
    book.record_outcome("letters")
    assert book.disclosures == 20
    assert book.spent > spent


def test_a_first_round_that_was_refused_costs_just_its_local_epsilon(tmp_path: Path) -> None:
    """The plain sum is the least then; an answer that comes before changes nothing."""
    book = Ledger.open(tmp_path / "mine", epsilon=3.0)
    cost = book.spend(promise(), round_id="r")
    assert cost == pytest.approx(first(promise()))
    assert book.record_outcome("r", answered=True) == cost
    assert book.record_outcome("r") == 3.0


def test_settling_may_pass_the_limit_and_then_nothing_more_is_taken(tmp_path: Path) -> None:
    """The true loss is shown, and the next round is refused, however small."""
    book = Ledger.open(tmp_path / "mine", epsilon=1.0)
    book.spend(promise(), round_id="r")
    assert book.record_outcome("r") == 3.0
    assert book.left == 0.0
    with pytest.raises(Refused, match="above the limit"):
        book.spend(promise(epsilon=0.1), round_id="s")


def test_a_round_that_promises_the_limit_fits(tmp_path: Path) -> None:
    """The grid of losses leaves room for one round that promises the whole limit."""
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
    """A round that would exceed the limit leaves the file unchanged, byte for byte."""
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


def test_own_coins_and_methods_are_kept(tmp_path: Path) -> None:
    """Silence is entered with its rate, and a guarantee of the generic method as such."""
    coin = OwnCoin(law=AnyLdp(epsilon=3.0), rate=0.25)
    book = Ledger.open(tmp_path / "mine", epsilon=4.0, delta=1e-6)
    silent = book.spend(amplify(coin, crowd=4000, delta=1e-6), round_id="a")
    assert silent == pytest.approx(first(amplify(coin, crowd=4000, delta=1e-6)))
    law = minkowski(3.0, radius=1.0, dimension=2)
    other = Ledger.open(tmp_path / "other", epsilon=4.0, delta=1e-6)
    generic = amplify(law, crowd=4000, delta=1e-6, method="generic")
    assert other.spend(generic, round_id="a") == pytest.approx(first(generic))


def entries(path: Path) -> list[dict[str, object]]:
    """Read the entries of a ledger as plain data."""
    return list(json.loads(path.read_text())["entries"])


def test_an_entry_holds_the_rounds_data(tmp_path: Path) -> None:
    """Law, rate, hidden people and digest are entered as given and read back equal."""
    law = minkowski(3.0, radius=1.5, dimension=2, norm=2)
    coin = OwnCoin(law=law, rate=0.5)
    guarantee = amplify(coin, crowd=2000, corrupted=10, exposed=20, lost=30, delta=1e-6)
    Ledger.open(tmp_path / "mine", epsilon=4.0).spend(
        guarantee, round_id="r", digest=b"\x01", until=7
    )
    (entry,) = entries(tmp_path / "mine")
    assert entry == {
        "round": "r",
        "digest": "01",
        "kind": "two-level",
        "epsilon": 3.0,
        "crowd": 1940,
        "cap": law.cap,
        "apart": law.apart,
        "kernel": law.kernel,
        "rate": 0.5,
        "fields": [],
        "traps": 0.0,
        "decoys": 0,
        "disclosures": 0,
        "by_itself": False,
        "until": 7,
        "end": "",
    }
    again = Ledger.open(tmp_path / "mine", clock=lambda: 0.0)
    assert (
        guarantee.epsilon * (1 - 1e-9) <= again.spent == pytest.approx(first(guarantee), rel=1e-9)
    )


def test_a_law_without_a_place_in_the_file_is_entered_as_any(tmp_path: Path) -> None:
    """Tables and promises of another method are charged as the worst mechanism."""
    table = Channel([[0.6, 0.4], [0.4, 0.6]])
    book = Ledger.open(tmp_path / "mine", epsilon=20.0)
    book.spend(amplify(table, crowd=500, delta=1e-6), round_id="table")
    square = minkowski(1.0, radius=1.0, dimension=2)
    book.spend(amplify(square, crowd=500, delta=1e-6, method="generic"), round_id="generic")
    assert [entry["kind"] for entry in entries(tmp_path / "mine")] == ["any-ldp"] * 2
    assert [entry["epsilon"] for entry in entries(tmp_path / "mine")] == [
        pytest.approx(math.log(1.5)),
        1.0,
    ]


def test_fields_are_charged_by_their_own_law(tmp_path: Path) -> None:
    """A report of several fields costs what its law costs, also after reopening the file."""
    fields = Fieldwise(laws=(grid(1.0, cells=10),) * 3 + (grid(1.0, cells=5),))
    guarantee = amplify(fields, crowd=10_000, delta=1e-6)
    Ledger.open(tmp_path / "mine", epsilon=3.0).spend(guarantee, round_id="fields")
    (entry,) = entries(tmp_path / "mine")
    assert entry["kind"] == "fieldwise"
    assert len(cast("list[object]", entry["fields"])) == 4
    again = Ledger.open(tmp_path / "mine").spent
    assert guarantee.epsilon * (1 - 1e-9) <= again <= 1.02 * first(guarantee)
    assert again < 0.3 * amplify(AnyLdp(epsilon=4.0), crowd=10_000, delta=1e-6).epsilon


def test_the_limit_itself_is_within_the_limit(tmp_path: Path) -> None:
    """A total equal to the limit is accepted; any larger one is refused."""
    half = amplify(AnyLdp(epsilon=0.5), crowd=1, delta=1e-6)
    book = Ledger.open(tmp_path / "mine", epsilon=1.0)
    book.spend(half, round_id="a")
    assert book.spend(half, round_id="b") == 1.0
    assert book.left == 0.0
    tight = Ledger.open(tmp_path / "tight", epsilon=math.nextafter(1.0, 0.0))
    tight.spend(half, round_id="a")
    with pytest.raises(Refused, match="above the limit"):
        tight.spend(half, round_id="b")
