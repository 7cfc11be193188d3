"""Ticket files and the lock of a person's folder; only their owner can read the files."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coatcheck.durable_files import read_secret, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Lock the folder of a file against this person's other programs while the file is replaced.

    One lock file for the whole folder: a lock file per ticket would reveal deleted tickets.
    """
    try:
        descriptor = os.open(path.with_name(".coatcheck.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class TicketFile:
    """The file of a ticket, which is written whole or not at all."""

    path: Path

    def load(self) -> Ticket | None:
        """Return the ticket; None if there is none yet."""
        return self.read() if self.path.exists() else None

    def read(self) -> Ticket:
        """Return the ticket, which must be there."""
        if not self.path.exists():
            raise Misuse(f"there is no ticket at {self.path}; join first")
        return read_ticket(read_secret(self.path))

    def keep(self, ticket: Ticket) -> None:
        """Store a new ticket; reject it if another program has stored one meanwhile."""
        with self.lock():
            write_bytes(self.path, write_ticket(ticket), secret=True)

    def update(self, ticket: Ticket) -> None:
        """Store the same ticket with a receipt, or with letters written or read."""
        write_bytes(self.path, write_ticket(ticket), secret=True, replace=True)

    def lock(self) -> AbstractContextManager[None]:
        """Lock out other programs of this person while the ticket is read and replaced."""
        return folder_lock(self.path)

    def discard(self) -> None:
        """Remove a new ticket from which nothing was sent."""
        self.path.unlink()
