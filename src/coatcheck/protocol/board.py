"""The board: append-only and public. It logs terms, shows bulletins and letters, and opens nothing.

It is given a way to sign and a way to check signatures, holds no key that opens, and cannot
import one. Everything it ever showed is a leaf of one log; its checkpoints and proofs let
anybody find out if it shows different things to different people. SPEC section 9.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.ends import check_flawless, speaker
from coatcheck.protocol.merkle import Tree
from coatcheck.protocol.notices import (
    LETTER_LEAF,
    ROUND_LEAF,
    TERMS_LEAF,
    Bulletin,
    Checkpoint,
    Posting,
)
from coatcheck.protocol.terms import Round
from coatcheck.protocol.tiles import TileName

Sign = Callable[[bytes], bytes]
Check = Callable[[bytes, bytes, bytes], None]
"""Called with key, signature and message; raises if the signature does not hold."""


class Crowded(Refused):
    """An address has all the letters that it may get in a round."""


@dataclass
class _Shown:
    """What the board has of one round; `received` has the letters to each address."""

    raw: bytes
    bulletin: Bulletin
    place: int
    letters: list[bytes] = field(default_factory=list)
    received: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))


class Board:
    """An append-only public board for many rounds.

    *Guarantee:* the terms of a round before anything else of it, one end per round, letters only
    to addresses on it, nothing ever taken back.

    Attributes:
        letters_each: how many letters an address may get in a round. Anybody may write, and who
            writes is sealed inside, so only what an address gets can be bounded.
    """

    def __init__(self, *, sign: Sign, check: Check, letters_each: int | None = None) -> None:
        self.letters_each = letters_each
        self._sign = sign
        self._check = check
        self._log = Tree()
        self._rounds: dict[bytes, _Shown] = {}
        self._places: dict[bytes, int] = {}
        self._logged: dict[bytes, int] = {}

    def restore(self, history: Iterable[tuple[Round, bytes]]) -> None:
        """Show everything again that an earlier board showed, in order.

        `TERMS_LEAF` stands for the terms of a round; then come its bulletin and its letters. What
        was shown stays, also where fewer letters are allowed now.
        """
        letters_each, self.letters_each = self.letters_each, None
        for round_, raw in history:
            if raw == TERMS_LEAF:
                self.log_terms(round_)
            else:
                (self.post if round_.digest in self._rounds else self.publish)(raw, round_)
        self.letters_each = letters_each

    def __len__(self) -> int:
        return len(self._log)

    def log_terms(self, round_: Round) -> int:
        """Log the terms of a round, before it opens, and return their place; again, the same."""
        place = self._logged.get(round_.digest)
        if place is None:
            place = self._logged[round_.digest] = self._log.append(TERMS_LEAF + round_.digest)
        return place

    def terms_place(self, digest: bytes) -> int | None:
        """Return the place of a round's terms in the log, if it has them."""
        return self._logged.get(digest)

    def publish(self, raw: bytes, round_: Round) -> int:
        """Show the end of a round and return its place in the log; again, the same place.

        The first end stays, whoever signed it: the server's bulletin, or a shuffler's word that it
        gave the round up.
        """
        shown = self._rounds.get(round_.digest)
        if shown is not None:
            if shown.raw != raw:
                raise Refused("another end of this round is on the board and stays there")
            return shown.place
        if round_.digest not in self._logged:
            raise Refused("the terms of this round are not in the log: nothing of it is shown")
        bulletin = Bulletin.decode(raw, round_)
        check_flawless(bulletin.heading, round_)
        key = bytes.fromhex(speaker(bulletin.heading, round_).verifying)
        self._check(key, bulletin.heading.signature, bulletin.heading.signed_part())
        place = self._log.append(ROUND_LEAF + bulletin.heading.encode())
        self._rounds[round_.digest] = _Shown(raw, bulletin, place)
        return place

    def post(self, raw: bytes, round_: Round) -> int:
        """Show a sealed letter and return its place in the log; again, the same place."""
        shown = self._shown(round_.digest)
        if raw in self._places:
            return self._places[raw]
        posting = Posting.decode(raw, round_)
        groups = range(len(round_.terms.groups))
        if all(shown.bulletin.find(posting.recipient, group) is None for group in groups):
            raise Refused("nobody has this address in this round: letters go to partners")
        received = shown.received[posting.recipient]
        if self.letters_each is not None and len(received) >= self.letters_each:
            raise Crowded("this address has all the letters that a round allows it")
        shown.letters.append(raw)
        received.append(raw)
        self._places[raw] = self._log.append(LETTER_LEAF + raw)
        return self._places[raw]

    def counts(self) -> dict[bytes, int]:
        """How many letters each round has whose bulletin is on the board."""
        return {digest: len(shown.letters) for digest, shown in self._rounds.items()}

    def bulletin(self, digest: bytes) -> bytes:
        """Return the whole bulletin of a round, as published."""
        return self._shown(digest).raw

    def entry(self, digest: bytes, *, group: int, address: bytes) -> tuple[bytes, int, list[bytes]]:
        """Return one entry, its place in the bulletin's tree, and the path to the root."""
        shown = self._shown(digest)
        known = group < len(shown.bulletin.entries)
        found = shown.bulletin.find(address, group) if known else None
        if found is None:
            raise Refused("nobody has this address in this group of the round")
        place = found + sum(shown.bulletin.heading.sizes[:group])
        return shown.bulletin.entries[group][found], place, shown.bulletin.tree.inclusion(place)

    def letters(self, digest: bytes, *, since: int = 0) -> list[bytes]:
        """Return the letters of a round in the order of posting, the first `since` left out.

        Who asks for those to one address directly shows whose it is; `letters_to` is for relays.
        """
        return self._shown(digest).letters[since:]

    def letters_to(self, address: bytes, digest: bytes, *, size: int) -> list[bytes]:
        """Return the letters to one address among the first `size` things of the log."""
        found = self._shown(digest).received.get(address, [])
        return [raw for raw in found if self._places[raw] < size]

    def heading(self, digest: bytes) -> bytes:
        """Return the signed head of a round's bulletin."""
        return self._shown(digest).bulletin.heading.encode()

    def checkpoint(self) -> bytes:
        """Sign what was shown so far: how many leaves, and the root over them."""
        return Checkpoint(len(self._log), self._log.root()).sign(self._sign)

    def place(self, digest: bytes) -> int:
        """Return the place of a round's heading in the log."""
        return self._shown(digest).place

    def inclusion(self, place: int, *, size: int | None = None) -> list[bytes]:
        """Prove that a leaf of the log is under the root over `size` leaves."""
        return self._log.inclusion(place, size)

    def consistency(self, old: int, *, new: int | None = None) -> list[bytes]:
        """Prove that the log only grew between two sizes."""
        return self._log.consistency(old, new)

    def hashes(self, name: TileName) -> bytes:
        """Return the hashes of a tile of the log."""
        return b"".join(self._log.hashes(name.height, name.start, name.end))

    def leaf(self, place: int, digest: bytes, raw: bytes) -> bytes:
        """Return the leaf at a place, of a round: its terms, its heading, or this letter."""
        if self._logged[digest] == place:
            return TERMS_LEAF + digest
        is_heading = self._shown(digest).place == place
        return ROUND_LEAF + self.heading(digest) if is_heading else LETTER_LEAF + raw

    def _shown(self, digest: bytes) -> _Shown:
        if digest not in self._rounds:
            raise Misuse("this round is not on the board yet: ask again when it is answered")
        return self._rounds[digest]
