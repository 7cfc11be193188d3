"""The server's store: one batch and one bulletin per round."""

from dataclasses import dataclass
from typing import ClassVar

from coatcheck.protocol.log.merkle import HASH_SIZE
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase
from coatcheck.stores.round_store import RoundStore, StoredRound


@dataclass(frozen=True)
class ServerRound(StoredRound[ServerPhase]):
    """A server's round as it is stored; its outcome is how it ended, empty before."""

    phase: ServerPhase = ServerPhase.PROPOSED
    outcome: str = ""


class ServerStore(RoundStore[ServerPhase, ServerRound]):
    """What a server must not lose."""

    role = "server"
    moves = SERVER_TRANSITIONS
    record = ServerRound
    needs: ClassVar = {ServerPhase.BATCHED: "round", ServerPhase.ANSWERED: "batch"}
    noting = frozenset({ServerPhase.BATCHED})
    # Some partitions of its batch are here, or some parts of its bulletin are made.
    may: ClassVar = {ServerPhase.AWAITING: "round", ServerPhase.BATCHED: "batch"}

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures: the round awaits its batch."""
        with self.writing(fence) as session:
            self.moved(session, digest, "agree")
            sql = "UPDATE server_rounds SET signed = ? WHERE digest = ?"
            session.rows(sql, (signed, digest))

    def answer(
        self,
        digest: bytes,
        move: str,
        bulletin: bytes,
        *,
        parts: bytes = b"",
        density: bytes = b"",
        fence: int,
    ) -> str:
        """Keep the end (`answer`, `refuse`, `abandon`, `lose`), forget the batch; how it ended.

        The entries of a bulletin are in the depot until the board has them; `parts` has the hash of
        each of its parts. A density of people that the batch showed takes the place of any earlier
        one.
        """
        with self.writing(fence) as session:
            phase = self.moved(session, digest, move)
            outcome: str = phase.value
            sql = "UPDATE server_rounds SET outcome = ? WHERE digest = ?"
            session.rows(sql, (outcome, digest))
            self.drop(session, digest)
            self.keep(session, digest, "bulletin", bulletin)
            if parts:
                self.keep(session, digest, "parts", parts)
            if phase in self.needs:
                self.vault.make(digest, self.needs[phase])
            if density:
                session.rows("DELETE FROM server_blobs WHERE kind = 'density'")
                self.keep(session, digest, "density", density)
        self.destroy_keys(digest, phase)
        return outcome

    def listed(self, digest: bytes) -> list[bytes]:
        """Give the hash of each part of a bulletin's entries, in order."""
        sql = "SELECT raw FROM server_blobs WHERE digest = ? AND kind = 'parts'"
        raw = b"".join(bytes(row[0]) for row in self.run(sql, digest))
        return [raw[at : at + HASH_SIZE] for at in range(0, len(raw), HASH_SIZE)]

    def density(self) -> bytes:
        """Give the density of people that the last round showed that could; empty if none did."""
        found = self.run("SELECT raw FROM server_blobs WHERE kind = 'density'")
        return bytes(found[0][0]) if found else b""

    def finish(self, digest: bytes, move: str, *, fence: int) -> None:
        """Remember that the board has the bulletin (`publish`), or forget it (`yield`, `lapse`)."""
        with self.writing(fence) as session:
            phase = self.moved(session, digest, move)
            if move != "publish":
                self.drop(session, digest)
        self.destroy_keys(digest, phase)
