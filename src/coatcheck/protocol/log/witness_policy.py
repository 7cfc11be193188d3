"""Which witnesses must have cosigned a log: a number of several, in groups of groups.

`Quorum` says when enough have cosigned. `read_policy` reads it from the file format that
transparency logs share (C2SP tlog-policy), so that one file serves all programs of a person. SPEC
section 18.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from coatcheck.errors import Malformed
from coatcheck.protocol.log.signed_notes import COSIGNATURE, ED25519, NoteKey

_LINES: Final = 1_000
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_NONE: Final = b"none"


@dataclass(frozen=True)
class Quorum:
    """At least so many of these witnesses; the empty one demands nobody.

    Attributes:
        least: how many members must have cosigned.
        members: the keys of one witness each (several during a rotation), or quorums of their own.
    """

    least: int = 0
    members: tuple["frozenset[bytes] | Quorum", ...] = ()

    @classmethod
    def of(cls, witnesses: Sequence[Collection[bytes]], least: int | None = None) -> "Quorum":
        """Return a quorum of witnesses; by default all of them."""
        members = tuple(frozenset(keys) for keys in witnesses)
        return cls(len(members) if least is None else least, members)

    def reached(self, cosigned: Callable[[frozenset[bytes]], bool]) -> bool:
        """Return whether enough members have cosigned, given who has."""
        return self.count(cosigned) >= self.least

    def count(self, cosigned: Callable[[frozenset[bytes]], bool]) -> int:
        """Count the members who have cosigned."""
        return sum(
            member.reached(cosigned) if isinstance(member, Quorum) else cosigned(member)
            for member in self.members
        )

    def plain(self) -> dict[str, Any]:
        """Return the quorum with keys in hex, as JSON and the browser's client take it."""
        members = [
            member.plain() if isinstance(member, Quorum) else sorted(key.hex() for key in member)
            for member in self.members
        ]
        return {"least": self.least, "of": members}


NOBODY: Final = Quorum()


@dataclass(frozen=True)
class Policy:
    """What a policy file says.

    Attributes:
        quorum: who must have cosigned a checkpoint.
        logs: the keys of the logs that the file names; empty if any log will do.
    """

    quorum: Quorum
    logs: frozenset[bytes] = frozenset()


@dataclass
class _Reading:
    """What the lines so far define."""

    logs: set[bytes] = field(default_factory=set)
    keys: set[bytes] = field(default_factory=set)
    members: dict[bytes, frozenset[bytes] | Quorum] = field(default_factory=dict)
    taken: set[bytes] = field(default_factory=set)
    quorum: Quorum | None = None

    def line(self, words: list[bytes]) -> None:
        """Read one line."""
        match words:
            case [b"log", key, *url] if len(url) <= 1:
                self._log(key)
            case [b"witness", name, key, *url] if len(url) <= 1:
                self._define(name, frozenset({self._witness(key)}))
            case [b"group", name, least, *names] if names:
                self._define(name, self._group(least, names))
            case [b"quorum", name]:
                self._decide(name)
            case _:
                raise Malformed("a line must be a log, witness, group or quorum as C2SP writes it")

    def _log(self, text: bytes) -> None:
        raw = _key(text, ED25519).raw
        if raw in self.logs:
            raise Malformed("a log is listed twice")
        self.logs.add(raw)

    def _witness(self, text: bytes) -> bytes:
        raw = _key(text, COSIGNATURE).raw
        if raw in self.keys:
            raise Malformed("a witness is listed twice under one key: it would count twice")
        self.keys.add(raw)
        return raw

    def _group(self, least: bytes, names: list[bytes]) -> Quorum:
        members = []
        for name in names:
            if name not in self.members:
                raise Malformed("a group names a member that no line before defines")
            if name in self.taken:
                raise Malformed("a member is in two groups: it would count twice")
            self.taken.add(name)
            members.append(self.members[name])
        words = {b"all": len(names), b"any": 1}
        if least not in words and not (least.isdigit() and not least.startswith(b"0")):
            raise Malformed("a group needs `all`, `any` or a number of its members")
        count = words.get(least) or int(least[:9])
        if count > len(names):
            raise Malformed("a group demands more members than it has")
        return Quorum(count, tuple(members))

    def _define(self, name: bytes, member: frozenset[bytes] | Quorum) -> None:
        if name in self.members or name == _NONE:
            raise Malformed("a name is defined twice")
        self.members[name] = member

    def _decide(self, name: bytes) -> None:
        if self.quorum is not None:
            raise Malformed("there must be one `quorum` line, not several")
        if name == _NONE:
            self.quorum = NOBODY
            return
        if name not in self.members:
            raise Malformed("the quorum names what no line before defines")
        member = self.members[name]
        self.quorum = member if isinstance(member, Quorum) else Quorum(1, (member,))


def read_policy(raw: bytes) -> Policy:
    """Read a policy file (C2SP tlog-policy) strictly; the error names the line."""
    reading, lines = _Reading(), raw.split(b"\n")
    if len(lines) > _LINES:
        raise Malformed(f"a policy file has at most {_LINES:,} lines, this one has more")
    for number, line in enumerate(lines, start=1):
        try:
            words = _words(line)
            if words and not words[0].startswith(b"#"):
                reading.line(words)
        except Malformed as error:
            raise Malformed(f"line {number} of the policy file: {error}") from None
    if reading.quorum is None:
        raise Malformed("the policy file has no `quorum` line; `quorum none` demands nobody")
    return Policy(reading.quorum, frozenset(reading.logs))


def _words(line: bytes) -> list[bytes]:
    """Return the words of a line, between spaces and tabs."""
    if _CONTROL.search(line):
        raise Malformed("a policy file has no control characters but tabs and newlines")
    return [word for word in re.split(rb"[ \t]+", line) if word]


def _key(text: bytes, kind: int) -> NoteKey:
    try:
        key = NoteKey.read(text.decode())
    except UnicodeDecodeError:
        raise Malformed("a key must be text in UTF-8") from None
    if key.kind != kind:
        owner = "a witness" if kind == COSIGNATURE else "a log"
        raise Malformed(f"this is not the key of {owner}: it has another kind of signature")
    return key
