"""Byte layouts inside the seals: reports, answers and letters.

Reports and answers travel between a person and the server, letters between two people. The
shuffler and the board open none of these seals and cannot import this file. The server reads many
reports at once. SPEC section 8.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Malformed, Misuse, Refused
from coatcheck.protocol.keys import Contact, KeyPairs
from coatcheck.protocol.terms import LETTER_FIXED, REPORT_HEAD, SIGNATURE_SIZE, Round, Suite
from coatcheck.protocol.wire.encoding import VERSION, Layout

if TYPE_CHECKING:
    from coatcheck.randomizers import Randomizer
    from coatcheck.tasks import Task

_LETTER_LABEL: Final = b"coatcheck/v1/letter\0"
_ANSWER: Final = Layout("answer", ">BBHHxx")
ANSWER_HEAD: Final = _ANSWER.size
_ANSWER_HEADS: Final = np.dtype(
    [("version", "u1"), ("kind", "u1"), ("count", ">u2"), ("later", ">u2"), ("zeros", "V2")]
)
COUNT_LIMIT: Final = 2**16 - 1
VALUES, PARTNERS, LOCATED = 1, 2, 3
COUNTER_LIMIT: Final = 2**53 - 1
"""The highest counter of a letter: the ticket that remembers it is JSON, exact up to here."""


@dataclass(frozen=True)
class PayloadFormat:
    """The encoding of a randomizer's report: each coordinate as an offset in the fewest bytes.

    Coordinate j of a report, an integer from low[j] to high[j], is written as report[j] - low[j],
    unsigned and big-endian, in the least number of bytes that holds high[j] - low[j].
    """

    low: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def between(cls, low: NDArray[np.int64], high: NDArray[np.int64]) -> "PayloadFormat":
        """Make the format for a randomizer's inclusive bounds."""
        return cls(tuple(int(n) for n in np.ravel(low)), tuple(int(n) for n in np.ravel(high)))

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of each coordinate."""
        spans = (high - low for low, high in zip(self.low, self.high, strict=True))
        return tuple(max(1, (span.bit_length() + 7) // 8) for span in spans)

    @property
    def size(self) -> int:
        """Bytes of a whole payload."""
        return sum(self.widths)

    def encode(self, report: Sequence[int]) -> bytes:
        """Write one report."""
        if len(report) != len(self.low):
            raise Misuse(f"a report has {len(self.low)} coordinates, this one has {len(report)}")
        parts = []
        for value, low, high, width in zip(report, self.low, self.high, self.widths, strict=True):
            if not low <= value <= high:
                raise Misuse(
                    f"a coordinate of this report must be from {low} to {high}, got {value}"
                )
            parts.append((int(value) - low).to_bytes(width, "big"))
        return b"".join(parts)

    def decode(self, payloads: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Read payloads (n, size) at once: the reports (n, w), and which of them are in range."""
        reports = np.empty((len(payloads), len(self.low)), dtype=np.int64)
        in_range = np.ones(len(payloads), dtype=np.bool_)
        start = 0
        for j, width in enumerate(self.widths):
            offset = np.zeros(len(payloads), dtype=np.int64)
            for column in range(start, start + width):
                offset = (offset << 8) | payloads[:, column]
            start += width
            in_range &= (offset >= 0) & (offset <= self.high[j] - self.low[j])
            reports[:, j] = offset + self.low[j]
        return reports, in_range


def encode_report(
    round_: Round, *, group: int, contact: bytes, payload: bytes, note: bytes
) -> bytes:
    """Write a report: version, group, one-time keys, payload, note."""
    terms, contact_size = round_.terms.groups[group], round_.suite.contact_size
    sizes = {"contact": contact_size, "payload": terms.payload_size, "note": terms.note_size}
    for (name, size), part in zip(sizes.items(), (contact, payload, note), strict=True):
        if len(part) != size:
            raise Misuse(f"a {name} of this group has {size} bytes, this one has {len(part)}")
    return bytes((VERSION, group)) + contact + payload + note


@dataclass(frozen=True)
class ReportTable:
    """Many opened reports of one group, side by side; rows are reports."""

    well_formed: NDArray[np.bool_]
    contacts: NDArray[np.uint8]
    payloads: NDArray[np.uint8]
    notes: NDArray[np.uint8]

    @classmethod
    def read(cls, plaintexts: Sequence[bytes], round_: Round, group: int) -> "ReportTable":
        """Read opened reports at once; `well_formed` marks those of this version and group."""
        size = round_.report_size(group)
        rows = np.frombuffer(b"".join(plaintexts), dtype=np.uint8).reshape(-1, size)
        keys = REPORT_HEAD + round_.suite.contact_size
        note = size - round_.terms.groups[group].note_size
        well_formed = (rows[:, 0] == VERSION) & (rows[:, 1] == group)
        return cls(well_formed, rows[:, REPORT_HEAD:keys], rows[:, keys:note], rows[:, note:])


@dataclass(frozen=True)
class Partner:
    """Another report that an answer points to: its group, its keys, and perhaps its report."""

    group: int
    contact: bytes
    payload: bytes = b""


@dataclass(frozen=True)
class Answer:
    """A person's answer: their own values and values for everybody, or partners, or nothing.

    Attributes:
        partners: the people whom the answer names; with candidates, those of the first pass.
        second: the candidates for the second pass, if the task gives any.
    """

    values: tuple[float, ...] = ()
    shared: tuple[float, ...] = ()
    partners: tuple[Partner, ...] = ()
    second: tuple[Partner, ...] = ()


def answer_heads(
    kinds: NDArray[np.int64], counts: NDArray[np.int64], later: NDArray[np.int64] | int
) -> NDArray[np.uint8]:
    """Write the heads of many answers, (n, 8); `later` counts shared values or second partners."""
    if counts.max(initial=0) > COUNT_LIMIT or np.max(later, initial=0) > COUNT_LIMIT:
        raise Misuse(f"an answer holds at most {COUNT_LIMIT} numbers or partners")
    heads = np.zeros(len(kinds), dtype=_ANSWER_HEADS)
    heads["version"], heads["kind"] = VERSION, kinds
    heads["count"], heads["later"] = counts, later
    return heads.view(np.uint8).reshape(len(kinds), ANSWER_HEAD)


def decode_answer(raw: bytes, round_: Round) -> Answer:
    """Read an answer strictly: version, counts, and zeros to the end."""
    kind, count, shared = _ANSWER.unpack(raw)
    if kind not in {VALUES, PARTNERS, LOCATED}:
        raise Malformed(f"the kind of an answer must be 1, 2 or 3, got {kind}")
    if kind == VALUES:
        end = ANSWER_HEAD + 8 * (count + shared)
        _check_padding(raw, end)
        numbers = struct.unpack_from(f">{count + shared}d", raw, ANSWER_HEAD)
        return Answer(numbers[:count], numbers[count:])
    if shared > count or not count:
        raise Malformed("this answer names no partners, or more second partners than partners")
    partners = []
    end = ANSWER_HEAD
    for _ in range(count):
        at = end
        if at >= len(raw) or raw[at] >= len(round_.terms.groups):
            raise Malformed(
                "this answer is truncated, or names a group that the round does not have"
            )
        keys = at + 1 + round_.suite.contact_size
        end = keys + (round_.terms.groups[raw[at]].payload_size if kind == LOCATED else 0)
        partners.append(Partner(raw[at], raw[at + 1 : keys], raw[keys:end]))
    _check_padding(raw, end)
    first = count - shared
    return Answer(partners=tuple(partners[:first]), second=tuple(partners[first:]))


def _check_padding(raw: bytes, end: int) -> None:
    if end > len(raw) or any(raw[end:]):
        raise Malformed("this answer is truncated or not padded with zeros")


@dataclass(frozen=True)
class Letter:
    """An opened letter: its sender, its number among the sender's letters, and its text."""

    sender: Contact
    counter: int
    body: bytes


def _signed_letter(round_: Round, *, sender: bytes, recipient: bytes, rest: bytes) -> bytes:
    return _LETTER_LABEL + round_.digest + sender + recipient + rest


def encode_letter(
    round_: Round, *, sender: KeyPairs, recipient: bytes, counter: int, body: bytes
) -> bytes:
    """Write a letter with its signature inside, bound to round, sender, recipient and counter."""
    most = round_.terms.letter_size
    if len(body) > most:
        raise Misuse(f"a letter of this round has at most {most} bytes, this one has {len(body)}")
    if not 0 <= counter <= COUNTER_LIMIT:
        raise Misuse(f"a letter's counter must be from 0 to {COUNTER_LIMIT}, got {counter}")
    rest = struct.pack(">QH", counter, len(body)) + body.ljust(most, b"\0")
    text = _signed_letter(round_, sender=sender.address, recipient=recipient, rest=rest)
    return bytes((VERSION,)) + sender.contact_raw + rest + sender.signing.sign(text)


def decode_letter(raw: bytes, round_: Round, *, recipient: bytes) -> Letter:
    """Read a letter and check that its sender wrote it for this recipient in this round."""
    most, size = round_.terms.letter_size, round_.suite.contact_size
    if len(raw) != LETTER_FIXED + size + most or raw[0] != VERSION:
        raise Malformed("this letter has another version or size")
    sender = Contact.decode(round_.suite, raw[1 : 1 + size])
    rest, signature = raw[1 + size : -SIGNATURE_SIZE], raw[-SIGNATURE_SIZE:]
    text = _signed_letter(round_, sender=sender.address, recipient=recipient, rest=rest)
    sender.verifying.check(signature, text)
    counter, length = struct.unpack_from(">QH", rest)
    if length > most or any(rest[10 + length :]):
        raise Malformed("this letter is not padded with zeros")
    if counter > COUNTER_LIMIT:
        # The ticket remembers counters, and could not be read again with this one (S8.6).
        raise Malformed("this letter's counter is too large: ask its sender for another letter")
    return Letter(sender, counter, rest[10 : 10 + length])


def least_sizes(
    task: "Task", randomizers: Sequence["Randomizer"], *, suite: Suite
) -> list[tuple[int, int]]:
    """Return for each group the bytes of a payload, and the most that an answer can take."""
    for randomizer in randomizers:
        if not randomizer.exact:
            raise Refused(
                f"{randomizer.name} computes in floats, so its reports have no fixed size: choose"
                " an exact mechanism"
            )
    payloads = [
        PayloadFormat.between(randomizer.low, randomizer.high).size for randomizer in randomizers
    ]
    dimensions = tuple(randomizer.domain.dimension for randomizer in randomizers)
    expected = tuple(getattr(task, "dimensions", dimensions))
    if expected != dimensions:
        raise Refused(
            f"task {task.name} takes {_each(expected)} per person, the domains have"
            f" {_each(dimensions)}: choose domains that fit"
        )
    sizes = task.answer_size(dimensions)
    partner = 1 + suite.contact_size + max(payloads)
    answers = [ANSWER_HEAD + max(8 * size.numbers, size.references * partner) for size in sizes]
    return list(zip(payloads, answers, strict=True))


def _each(dimensions: Sequence[int]) -> str:
    counts = " and ".join(map(str, dimensions))
    return f"{counts} number{'s' * (tuple(dimensions) != (1,))}"
