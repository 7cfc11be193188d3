"""The server's store: one batch and one bulletin per round."""

from dataclasses import dataclass

from coatcheck.protocol.server import MOVES, Phase
from coatcheck.stores.database import Database
from coatcheck.stores.store import RoundStore, StoredRound, open_database


@dataclass(frozen=True)
class ServerRound(StoredRound[Phase]):
    """A server's round as it is stored; its outcome is `answered` or `refused`, empty before."""

    phase: Phase = Phase.PROPOSED
    outcome: str = ""


class ServerStore(RoundStore[Phase, ServerRound]):
    """What a server must not lose."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, role="server", moves=MOVES, record=ServerRound, column="outcome")

    def propose(self, round_: ServerRound, *, fence: int) -> ServerRound:
        """Keep a proposal; if one of this name is there, that one is given and nothing changes."""
        with self.writing(fence) as session:
            session.run(
                "INSERT INTO server_rounds (digest, name, signed, phase, accepted, outcome)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (round_.digest, round_.name, round_.signed, round_.phase.value, b"", ""),
            )
            return self.found(session, "WHERE name = ?", round_.name)[0]

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures: the round awaits its batch."""
        with self.writing(fence) as session:
            self.moved(session, digest, "agree")
            sql = "UPDATE server_rounds SET signed = ? WHERE digest = ?"
            session.run(sql, (signed, digest))

    def answer(self, digest: bytes, move: str, bulletin: bytes, *, fence: int) -> str:
        """Keep the bulletin (move `answer` or `refuse`) and forget the batch; how it ended."""
        with self.writing(fence) as session:
            outcome: str = self.moved(session, digest, move).value
            sql = "UPDATE server_rounds SET outcome = ? WHERE digest = ?"
            session.run(sql, (outcome, digest))
            self.drop(session, digest)
            self.keep(session, digest, "bulletin", bulletin)
        return outcome

    def bulletin(self, digest: bytes) -> bytes:
        """Give the bulletin."""
        return self.kept(digest, "bulletin")

    def publish(self, digest: bytes, *, fence: int) -> None:
        """Remember that the board has the bulletin."""
        with self.writing(fence) as session:
            self.moved(session, digest, "publish")


def server_store(url: str) -> ServerStore:
    """Open the store of a server: `memory:`, `sqlite:FILE` or `postgresql://...`."""
    return ServerStore(open_database(url, role="server"))
