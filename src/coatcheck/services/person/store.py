"""The file in which a person keeps the ticket of one round; only its owner can read it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coatcheck.durable_files import read_secret, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket


# HOUSE-DOC services.person.folders: "A person's folder, in which one program at a time replaces a file."
@contextmanager
def alone_beside(path: Path) -> Iterator[None]:
    """Keep other programs of this person out of a file's folder while the file is replaced.

    One lock for the whole folder, so that none tells of a ticket that is gone.
    """
    try:
        lock = os.open(path.with_name(".coatcheck.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True)
class TicketFile:
    """A ticket on the disk, written whole or not at all."""

    path: Path

    def load(self) -> Ticket | None:
        """Return the ticket, or None if there is none yet."""
        return self.read() if self.path.exists() else None

    def read(self) -> Ticket:
        """Return the ticket, which must be there."""
        if not self.path.exists():
            raise Misuse(f"there is no ticket at {self.path}: join first")
        return read_ticket(read_secret(self.path))

    def keep(self, ticket: Ticket) -> None:
        """Store a new ticket; one that is there already stays, whoever has just stored it."""
        with self.alone():
            write_bytes(self.path, write_ticket(ticket), secret=True)

    def update(self, ticket: Ticket) -> None:
        """Store the same ticket with a receipt, or with letters written or read."""
        write_bytes(self.path, write_ticket(ticket), secret=True, replace=True)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other programs of this person out while the ticket is read and replaced."""
        return alone_beside(self.path)

    def discard(self) -> None:
        """Remove a new ticket of which nothing has left."""
        self.path.unlink()
