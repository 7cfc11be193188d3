"""Two programs of one person at once: one file lock orders all replacements."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from coatcheck import durable_files
from coatcheck.errors import Misuse, Refused
from coatcheck.services.person.store import TicketFile
from support.rounds import OPENS
from support.sessions import SMALL, AtBoard, open_session

pytestmark = pytest.mark.service


def test_of_two_that_join_at_once_one_ticket_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs find no ticket at once; the second does not replace the first one's ticket."""
    file, first, other = TicketFile(tmp_path / "ticket"), SMALL.join(0), SMALL.join(0)
    write, told = durable_files.replace_file, []

    def join_too() -> None:
        with pytest.raises(Misuse, match="already exists"):
            TicketFile(file.path).keep(other)
        told.append(file.read())

    second = threading.Thread(target=join_too)

    def slow(path: Path, raw: bytes, *, mode: int) -> None:
        if not second.ident:
            second.start()
            second.join(0.2)  # time enough for one that does not wait
        write(path, raw, mode=mode)

    monkeypatch.setattr(durable_files, "replace_file", slow)
    file.keep(first)
    second.join()
    assert told == [first]


def test_two_that_write_at_once_use_two_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters differ, since a recipient would drop a letter with a repeated counter as a copy."""
    monkeypatch.setattr(time, "time", lambda: float(OPENS))
    file, to = TicketFile(tmp_path / "ticket"), SMALL.join(1).keys.contact_raw
    file.keep(SMALL.join(0))
    write = durable_files.replace_file

    def letter() -> None:
        with suppress(Refused):
            asyncio.run(open_session(file.path, AtBoard()).write(b"hi", to=to))

    second = threading.Thread(target=letter)

    def slow(path: Path, raw: bytes, *, mode: int) -> None:
        if not second.ident and path == file.path:
            second.start()
            second.join(0.5)  # time enough for one that does not wait
        write(path, raw, mode=mode)

    monkeypatch.setattr(durable_files, "replace_file", slow)
    letter()
    second.join()
    assert file.read().written == 2
