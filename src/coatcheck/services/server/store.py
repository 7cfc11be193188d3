"""The server's store: for each round its terms, then its batch, then its bulletin."""

from dataclasses import dataclass
from typing import ClassVar

from coatcheck.protocol.log.merkle import HASH_SIZE
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase
from coatcheck.stores.round_store import RoundStore, StoredRound


@dataclass(frozen=True)
class ServerRound(StoredRound[ServerPhase]):
    """A server's round as it is stored; `outcome` is empty until it ends."""

    phase: ServerPhase = ServerPhase.PROPOSED
    outcome: str = ""


class ServerStore(RoundStore[ServerPhase, ServerRound]):
    """What a server must not lose."""

    role = "server"
    moves = SERVER_TRANSITIONS
    record = ServerRound
    needs: ClassVar = {ServerPhase.BATCHED: "round", ServerPhase.ANSWERED: "batch"}
    working = frozenset({ServerPhase.BATCHED})
    # Some partitions of its batch came, or some parts of its bulletin are made.
    may: ClassVar = {ServerPhase.AWAITING: "round", ServerPhase.BATCHED: "batch"}

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Store the terms with all signatures: the round awaits its batch."""
        with self.writing(fence) as session:
            self.make_move(session, digest, "agree")
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
        """Store the end of a round (`answer`, `refuse`, `abandon`, `lose`); return its outcome.

        The batch is deleted. The entries of a bulletin are in the blob store until the board has
        them; `parts` has the hash of each of its parts. A density of people that the batch showed
        replaces any earlier one.
        """
        with self.writing(fence) as session:
            phase = self.make_move(session, digest, move)
            outcome: str = phase.value
            sql = "UPDATE server_rounds SET outcome = ? WHERE digest = ?"
            session.rows(sql, (outcome, digest))
            self.delete_blobs(session, digest)
            self.put_blob(session, digest, "bulletin", bulletin)
            if parts:
                self.put_blob(session, digest, "parts", parts)
            if phase in self.needs:
                self.round_keys.make(digest, self.needs[phase])
            if density:
                session.rows("DELETE FROM server_blobs WHERE kind = 'density'")
                self.put_blob(session, digest, "density", density)
        self.destroy_keys(digest, phase)
        return outcome

    def part_hashes(self, digest: bytes) -> list[bytes]:
        """Return the hash of each part of a bulletin's entries, in order."""
        sql = "SELECT raw FROM server_blobs WHERE digest = ? AND kind = 'parts'"
        raw = b"".join(bytes(row[0]) for row in self.run(sql, digest))
        return [raw[at : at + HASH_SIZE] for at in range(0, len(raw), HASH_SIZE)]

    def density(self) -> bytes:
        """Return the newest density of people that a round showed; empty if none did."""
        rows = self.run("SELECT raw FROM server_blobs WHERE kind = 'density'")
        return bytes(rows[0][0]) if rows else b""

    def finish(self, digest: bytes, move: str, *, fence: int) -> None:
        """Record that the board has the bulletin (`publish`), or delete it (`yield`, `lapse`)."""
        with self.writing(fence) as session:
            phase = self.make_move(session, digest, move)
            if move != "publish":
                self.delete_blobs(session, digest)
        self.destroy_keys(digest, phase)
