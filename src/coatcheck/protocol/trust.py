"""Trust: which keys a person knows from elsewhere, and what for.

A key is trusted in a role. Otherwise a server could put the board's key in the place of a shuffler,
or leave out the one shuffler that would not help it. SPEC section 6.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.terms import Notary, Terms

ROLES: Final = ("server", "shuffler", "board", "witness")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The verifying keys that somebody knows, by role.

    *Assumes:* at least one of `shufflers` does not help the server. Which one need not be known,
    so all of them must be in the cascade.

    Attributes:
        server: keys of servers that may run the round.
        shufflers: for each shuffler that is relied on its keys, more than one while they change.
        board: keys of boards that may show the answers.
        witnesses: for each witness whose word on the board's log counts its keys.
        demanded: how many of them must have cosigned it.
        anywhere: keys that may stand in any role, and that no cascade needs: weaker, because
            whoever holds two of them may stand where the other should.
    """

    server: frozenset[bytes] = frozenset()
    shufflers: tuple[frozenset[bytes], ...] = ()
    board: frozenset[bytes] = frozenset()
    witnesses: tuple[frozenset[bytes], ...] = ()
    demanded: int = 0
    anywhere: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, known: Iterable[tuple[str, Collection[bytes]]]) -> "Trust":
        """Gather keys told one role at a time; the keys of a shuffler's entry are one shuffler's.

        An empty role means any.
        """
        by_role: dict[str, list[frozenset[bytes]]] = {role: [] for role in ("", *ROLES)}
        for role, keys in known:
            if role not in by_role:
                raise Misuse(f"{role!r} is no role: a key is trusted as {', '.join(ROLES)}")
            by_role[role].append(frozenset(keys))
        return cls(
            server=_together(by_role["server"]),
            shufflers=tuple(by_role["shuffler"]),
            board=_together(by_role["board"]),
            witnesses=tuple(by_role["witness"]),
            demanded=len(by_role["witness"]),
            anywhere=_together(by_role[""]),
        )

    def demanding(self, witnesses: int) -> "Trust":
        """Demand the word of so many witnesses instead of all that are named."""
        if not 1 <= witnesses <= len(self.witnesses):
            raise Misuse(
                f"you name {len(self.witnesses)} witnesses (--trust witness=FILE): of these,"
                f" {witnesses} cannot be demanded"
            )
        return replace(self, demanded=witnesses)

    def plain(self) -> dict[str, Any]:
        """Spell the keys in hex by role, as JSON and the browser's client take them."""
        return {
            "server": _spelled(self.server),
            "shufflers": [_spelled(keys) for keys in self.shufflers],
            "board": _spelled(self.board),
            "witnesses": [_spelled(keys) for keys in self.witnesses],
            "demanded": self.demanded,
            "anywhere": _spelled(self.anywhere),
        }

    def check(self, terms: Terms) -> None:
        """Refuse terms with a stranger in any role, or without a shuffler that is relied on."""
        relied = _together(self.shufflers)
        self._know(terms.server, self.server, "server")
        for party in terms.shufflers:
            self._know(party, relied, "shuffler")
        self._know(terms.board, self.board, "board")
        cascade = {_raw(party) for party in terms.shufflers}
        for number, keys in enumerate(self.shufflers, start=1):
            if not keys & cascade:
                raise Refused(
                    f"the terms leave out shuffler {number} of the {len(self.shufflers)} that you"
                    " rely on: it may be the only honest one; ask for terms with all of them"
                )

    def _know(self, signer: Notary, keys: frozenset[bytes], role: str) -> None:
        if _raw(signer) not in keys | self.anywhere:
            raise Refused(
                f"the key of {signer.name!r} in the terms is not one you trust as a {role}: get"
                " it from them by another way, compare, and add it"
            )


def _together(several: Iterable[frozenset[bytes]]) -> frozenset[bytes]:
    return frozenset[bytes]().union(*several)


def _spelled(keys: frozenset[bytes]) -> list[str]:
    return sorted(key.hex() for key in keys)


def _raw(signer: Notary) -> bytes:
    return bytes.fromhex(signer.verifying)
