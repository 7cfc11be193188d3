"""Every round ends with one signed outcome on its board, whatever roles fail or lie."""

import asyncio
import random
from pathlib import Path

import httpx2
import pytest

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.keys import read_keys
from coatcheck.protocol.outcomes import (
    FEW_REPORTS,
    LATE,
    NO_REASON,
    OPERATOR,
    OUTCOMES,
    TASK,
    abandonment,
    answer_due,
    due,
    inconsistency,
    outcome_due,
    outcome_text,
)
from coatcheck.protocol.wire.bulletins import SERVER
from coatcheck.services.shuffler.routes import Abandonment
from support.clockwork import CLOSES, EXPIRES, Clockwork, clockwork

FINAL = {"delivered", "ended", "published", "overtaken", "lapsed"}


def said(works: Clockwork) -> tuple[str, int, int] | None:
    """Return the outcome, its reason and its signer."""
    end = works.end()
    if end is None:
        return None
    assert not inconsistency(end, works.round)
    return OUTCOMES[end.outcome], end.reason, end.signer


def forged(works: Clockwork, *, hop: int, signer: str) -> bytes:
    """Sign an abandonment in the name of the shuffler at a hop."""
    keys = read_keys(works.folder / f"{signer}.key").pairs
    word = abandonment(works.round, reason=OPERATOR, signer=hop)
    return word.signed(keys.signing.sign).encode()


async def tell(works: Clockwork, raw: bytes, *, to: str) -> int:
    """Send an outcome to a role; return the status."""
    async with httpx2.AsyncClient(transport=works.links[to]) as http:
        url = f"https://{to}/rounds/{works.digest.hex()}/end"
        return (await http.post(url, content=raw)).status_code


def expected(dead: str, crowd: int, shufflers: int) -> tuple[str, int, int]:
    """Return which role must end the round if this one died before the release, and why."""
    first_lives = dead != "shuffler-1"
    if first_lives and crowd < 3:
        return "abandoned", FEW_REPORTS, 0
    if dead == "server":  # the last shuffler cannot hand its batch on
        return "abandoned", LATE, shufflers - 1
    if not first_lives:  # the next one waits for nothing
        return "abandoned", LATE, SERVER if shufflers == 1 else 1
    if dead.startswith("shuffler"):  # the one before cannot hand its batch on
        return "abandoned", LATE, int(dead[-1]) - 2
    return "answered", NO_REASON, SERVER


@pytest.mark.parametrize("crowd", [3, 2])
@pytest.mark.parametrize("shufflers", [1, 2, 3])
def test_a_round_ends_whichever_role_dies(tmp_path: Path, shufflers: int, crowd: int) -> None:
    """One role dies before the release: by the deadline the board has the right outcome.

    No role that lives is left with anything to do.
    """

    async def whole(dead: str) -> None:
        async with clockwork(tmp_path / f"{dead}.", shufflers=shufflers) as works:
            await works.open()
            await works.join(crowd)
            if dead:
                works.kill(dead)
            await works.until(works.due)
            assert said(works) == expected(dead, crowd, shufflers), dead
            assert set(works.phases().values()) <= FINAL, (dead, works.phases())

    for dead in ("", "server", *(f"shuffler-{n + 1}" for n in range(shufflers))):
        asyncio.run(whole(dead))


def test_a_board_that_comes_back_gets_the_end(tmp_path: Path) -> None:
    """A role keeps an outcome for the board and drops it after a week."""

    async def whole(weeks: int) -> None:
        async with clockwork(tmp_path / str(weeks)) as works:
            await works.open()
            works.links["board"].cut = True
            await works.until(works.due)
            assert works.phases() == {"shuffler-1": "abandoned", "server": "abandoned"}
            await works.until(works.due + weeks * 7 * 86_400, step=86_400)
            works.links["board"].cut = False
            await works.look()
            assert set(works.phases().values()) <= FINAL
            assert (said(works) is None) == (weeks == 1)

    asyncio.run(whole(0))
    asyncio.run(whole(1))


def test_a_cascade_passes_an_abandonment_on(tmp_path: Path) -> None:
    """The first shuffler's operator ends a round: every role passes the same outcome on at once."""

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=3) as works:
            await works.open()
            await works.join(1)
            first = works.rounds["shuffler-1"]
            await first.abandon(works.digest.hex(), Abandonment(sure=True))  # type: ignore[attr-defined]
            await works.look()
            assert said(works) == ("abandoned", OPERATOR, 0)
            ended = dict.fromkeys(["shuffler-1", "shuffler-2", "shuffler-3"], "ended")
            assert works.phases() == {**ended, "server": "published"}
            end = works.end()
            assert end is not None
            assert "shuffler-1' abandoned the round" in outcome_text(end, works.round)
            assert works.board.seen.size == 2

    asyncio.run(whole())


def test_a_later_shuffler_that_hears_nothing_ends_the_round(tmp_path: Path) -> None:
    """It waits until its own deadline and not a second longer."""

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=2) as works:
            await works.open()
            works.kill("shuffler-1")
            last = due(works.round, 1) - works.start
            await works.until(last - 1)
            assert works.phases() == {"shuffler-2": "open", "server": "awaiting"}
            await works.until(last)
            assert said(works) == ("abandoned", LATE, 1)
            assert works.phases() == {"shuffler-2": "ended", "server": "published"}

    asyncio.run(whole())


def test_a_later_shuffler_with_its_batch_is_closed_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever registers while it mixes learns that the round is over, and does not come again."""

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=2) as works:
            await works.open()
            known, *_ = await works.join(3)
            mixing = works.rounds["shuffler-2"]

            async def interrupted(*_: object) -> None:
                raise Unavailable("no worker lives")

            monkeypatch.setattr(mixing, "run_in_worker", interrupted)
            await works.until(CLOSES + 60)
            assert works.phases()["shuffler-2"] == "closed"
            late = works.invite("riders").join((0.5, 0.5), ledger=None)
            assert await works.send(late.registrations[0], hop=1) == 409
            assert await works.send(known.registrations[0], hop=1) == 201  # its receipt again
            monkeypatch.undo()
            await works.until(CLOSES + 180)
            assert said(works) == ("answered", 0, SERVER)
            assert await works.send(late.registrations[0], hop=1) == 409

    asyncio.run(whole())


def test_only_an_earlier_shuffler_ends_a_round_and_only_before_its_batch(tmp_path: Path) -> None:
    """Outcomes by other parties, forged ones, and ones after the batch change nothing."""

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=2) as works:
            await works.open()
            good = forged(works, hop=0, signer="shuffler-1")
            assert await tell(works, forged(works, hop=0, signer="server"), to="server") == 403
            assert await tell(works, good[:-1], to="server") == 400
            later = forged(works, hop=1, signer="shuffler-2")
            assert await tell(works, later, to="shuffler-2") == 400  # its own
            assert await tell(works, later, to="shuffler-1") == 400  # nobody is before it
            own = forged(works, hop=SERVER, signer="server")
            assert await tell(works, own, to="shuffler-2") == 400
            assert await tell(works, forged(works, hop=7, signer="server"), to="board") == 400
            assert said(works) is None
            await works.join(3)
            works.links["board"].cut = True
            await works.until(101)
            assert works.phases()["server"] == "answered"
            assert await tell(works, good, to="server") == 409
            assert await tell(works, good, to="shuffler-2") == 409
            works.links["board"].cut = False
            await works.until(EXPIRES)
            assert said(works) == ("answered", NO_REASON, SERVER)
            assert await tell(works, good, to="board") == 409
            assert works.board.seen.size == 2

    asyncio.run(whole())


def test_the_first_outcome_on_the_board_stays(tmp_path: Path) -> None:
    """An abandonment that precedes the answers ends the round in the shuffler's name."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            await works.join(3)
            word = forged(works, hop=0, signer="shuffler-1")
            assert await tell(works, word, to="board") == 200
            await works.until(101)
            assert said(works) == ("abandoned", OPERATOR, 0)
            assert works.phases() == {"shuffler-1": "delivered", "server": "overtaken"}
            with pytest.raises(Misuse, match="no bulletin"):
                works.server.store.blob(works.digest, "bulletin")
            assert await tell(works, word, to="board") == 200  # the same bytes, the same place
            assert works.board.seen.size == 2

    asyncio.run(whole())


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_a_task_without_an_answer_in_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The deadline ends the round with a signed refusal; its tallies are the batch's."""

    async def broken(*_: object) -> str:
        if how == "hangs":
            await asyncio.Event().wait()
        raise MemoryError

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            await works.join(3)
            monkeypatch.setattr(works.server, "run_in_worker", broken)
            end = answer_due(works.round) - works.start
            if how == "fails":
                await works.until(end - 1)
                assert works.phases()["server"] == "batched"
                # With a batch it goes on, whatever a shuffler says.
                word = forged(works, hop=0, signer="shuffler-1")
                assert await tell(works, word, to="server") == 409
                assert works.phases()["server"] == "batched"
            else:  # a look that would wait for ever ends with the round's time
                monkeypatch.setattr(type(works.server), "within", _at_once)
            await works.until(end)
            assert said(works) == ("refused", TASK, SERVER)
            heading = works.end()
            assert heading is not None
            assert [tally.kept for tally in heading.tallies] == [3, 3]

    asyncio.run(whole())


async def _at_once(service: object, end: int, step: object) -> None:
    """Wait as `within` does, with no time left."""
    del service, end
    step.close()  # type: ignore[attr-defined]
    raise Refused("no time is left")


@pytest.mark.parametrize("seed", range(4))
def test_clocks_that_step_do_not_keep_a_round_from_its_end(tmp_path: Path, seed: int) -> None:
    """Every wall clock steps by up to ten minutes, both ways: the round is answered once.

    It does not close in less than half of its time, as no clock runs at more than twice its pace.
    """
    pick = random.Random(seed)  # noqa: S311 - steps of clocks, nothing secret

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=2) as works:
            await works.open()
            await works.join(3)
            for second in range(10, int(works.due), 10):
                works.off[pick.choice(list(works.services))] = pick.uniform(-600.0, 600.0)
                await works.until(second)
                if second < CLOSES / 2:
                    assert works.phases()["shuffler-1"] == "open"
            assert said(works) == ("answered", NO_REASON, SERVER)
            assert works.board.seen.size == 2

    asyncio.run(whole())


def test_terms_without_all_signatures_lapse(tmp_path: Path) -> None:
    """Nobody could join, so there is nothing to end; the server stops asking for signatures."""

    async def whole() -> None:
        async with clockwork(tmp_path, shufflers=2) as works:
            works.rounds["shuffler-2"].trusted = frozenset()  # so it signs nothing
            with pytest.raises(AssertionError):
                await works.open()
            (digest,) = works.server.rounds
            works.digest = digest
            await works.until(EXPIRES)
            assert works.phases()["server"] == "lapsed"
            assert outcome_due(works.server.rounds[digest].round) > works.wall
            assert works.end() is None

    asyncio.run(whole())
