"""The file in which a person keeps the ticket of one round; only its owner can read it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coatcheck.accounting.book import alone
from coatcheck.errors import Misuse
from coatcheck.files import read_secret, write_bytes
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket


def alone_beside(path: Path) -> AbstractContextManager[None]:
    """Keep other programs of this person out of a folder while a file there is replaced.

    One lock for the whole folder, so that no file tells of a ticket that is gone.
    """
    return alone(path.with_name(".coatcheck"))


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

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other programs of this person out while the ticket is read and replaced."""
        with ExitStack() as held:
            try:
                held.enter_context(alone_beside(self.path))
            except OSError as error:
                raise Misuse(f"cannot write {self.path}: {error.strerror}") from None
            yield

    def discard(self) -> None:
        """Remove a new ticket of which nothing has left."""
        self.path.unlink()
