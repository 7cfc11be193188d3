"""Commands and sessions charge a round that ended with too small a crowd."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import main
from coatcheck.errors import Refused
from coatcheck.protocol.log.verification import VerifiedBulletin, verify_bulletin
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.person.board_view import BoardView
from coatcheck.services.person.session import Session
from coatcheck.services.person.store import TicketFile
from protocol.test_server import HONEST, LOW_ORDER, SMALL, report, ticket, upload


def refused_round() -> bytes:
    """Return the bulletin of a round in which only two of three riders sent good reports."""
    bad = [ticket(upload(report(LOW_ORDER), n)) for n in range(2)]
    return SMALL.server().answer(SMALL.batch([*HONEST[:4], HONEST[5], HONEST[7], *bad]))


def joined(folder: Path) -> Ledger:
    """Take part as a rider, with a ticket and a ledger on disk."""
    book = Ledger.open(folder / "ledger", epsilon=9.0, delta=1e-2, clock=lambda: 0.0)
    store = TicketFile(folder / "ticket")
    SMALL.invitations[0].join((0.5, 0.5), ledger=book, store=store, entropy=SMALL.entropy)
    return book


def settled(folder: Path) -> bool:
    """Return from the file whether the ledger knows that the round hid nobody."""
    (entry,) = json.loads((folder / "ledger").read_text())["entries"]
    return bool(entry["end"] == "broken")


def test_collect_updates_the_ledger(tmp_path: Path) -> None:
    """With --ledger a refused round is charged before the error; without it nothing is."""
    before = joined(tmp_path).spent
    (tmp_path / "terms").write_bytes(document(SMALL.signed))
    (tmp_path / "bulletin").write_bytes(refused_round())
    files = [
        part for name in ("terms", "ticket", "bulletin") for part in (f"--{name}", tmp_path / name)
    ]
    command = ["collect", *map(str, files)]
    assert "too few valid reports" in CliRunner().invoke(main, command).stderr
    assert not settled(tmp_path)
    done = CliRunner().invoke(main, [*command, "--ledger", str(tmp_path / "ledger")])
    assert (done.exit_code, settled(tmp_path)) == (1, True)
    assert "too few valid reports" in done.stderr
    assert Ledger.open(tmp_path / "ledger").spent > before


def test_a_session_updates_the_ledger(tmp_path: Path) -> None:
    """Collecting over the network charges in the same way."""
    book = joined(tmp_path)

    async def refused(view: BoardView, ticket: Ticket) -> VerifiedBulletin:
        del view, ticket
        return verify_bulletin(refused_round(), SMALL.round)

    async def whole() -> None:
        path, trusted = tmp_path / "ticket", SMALL.roles.trusted
        url, offer = SMALL.round.address, SMALL.offer()
        async with Session(url, path=path, trusted=trusted, offer=offer) as session:
            await session.collect(ledger=book, retrieval=refused)

    with pytest.raises(Refused, match="too few"):
        asyncio.run(whole())
    assert settled(tmp_path)
