"""The server's store: one batch and one bulletin per round."""

from dataclasses import dataclass
from typing import ClassVar

from coatcheck.protocol.server_moves import MOVES, Phase
from coatcheck.stores.store import RoundStore, StoredRound


@dataclass(frozen=True)
class ServerRound(StoredRound[Phase]):
    """A server's round as it is stored; its outcome is how it ended, empty before."""

    phase: Phase = Phase.PROPOSED
    outcome: str = ""


class ServerStore(RoundStore[Phase, ServerRound]):
    """What a server must not lose."""

    role = "server"
    moves = MOVES
    record = ServerRound
    needs: ClassVar = {Phase.BATCHED: "round"}
    noting = frozenset({Phase.BATCHED})
    may: ClassVar = {Phase.AWAITING: "round"}  # some partitions of its batch are here

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures: the round awaits its batch."""
        with self.writing(fence) as session:
            self.moved(session, digest, "agree")
            sql = "UPDATE server_rounds SET signed = ? WHERE digest = ?"
            session.rows(sql, (signed, digest))

    def answer(
        self, digest: bytes, move: str, bulletin: bytes, *, density: bytes = b"", fence: int
    ) -> str:
        """Keep the end (move `answer`, `refuse` or `abandon`), forget the batch; how it ended.

        A density of people that the batch showed takes the place of any earlier one.
        """
        with self.writing(fence) as session:
            phase = self.moved(session, digest, move)
            outcome: str = phase.value
            sql = "UPDATE server_rounds SET outcome = ? WHERE digest = ?"
            session.rows(sql, (outcome, digest))
            self.drop(session, digest)
            self.keep(session, digest, "bulletin", bulletin)
            if density:
                session.rows("DELETE FROM server_blobs WHERE kind = 'density'")
                self.keep(session, digest, "density", density)
        self.destroy_keys(digest, phase)
        return outcome

    def density(self) -> bytes:
        """Give the density of people that the last round showed that could; empty if none did."""
        found = self.run("SELECT raw FROM server_blobs WHERE kind = 'density'")
        return bytes(found[0][0]) if found else b""

    def finish(self, digest: bytes, move: str, *, fence: int) -> None:
        """Remember that the board has the bulletin (`publish`), or forget it (`yield`, `lapse`)."""
        with self.writing(fence) as session:
            self.moved(session, digest, move)
            if move != "publish":
                self.drop(session, digest)
