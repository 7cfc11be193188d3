"""Wrapping: a report, and the traps beside it, in the layers of a cascade.

Every item of an upload looks alike from outside, and their order is drawn afresh: no shuffler can
tell a trap of a later one from the report. Sees a report only as bytes. SPEC sections 5 and 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coatcheck.entropy import Entropy
from coatcheck.protocol.envelope import Purpose, binding, seal
from coatcheck.protocol.keys import SealingKey
from coatcheck.protocol.parcels import ID_SIZE, Registration, Upload
from coatcheck.protocol.terms import Round
from coatcheck.protocol.traps import commitment


@dataclass(frozen=True)
class Parcel:
    """What a person hands in.

    Attributes:
        upload: for the first shuffler.
        registrations: for each later one, in order; they go first.
    """

    upload: bytes
    registrations: tuple[bytes, ...]


def wrap(report: bytes, round_: Round, *, group: int, entropy: Entropy) -> Parcel:
    """Seal a report for the server and the cascade, and make one trap for every later shuffler."""
    later = range(1, len(round_.terms.shufflers))
    name = entropy.token(ID_SIZE)
    server = SealingKey(round_.suite, bytes.fromhex(round_.terms.server.sealing))
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    traps = [entropy.token(round_.item_size(group, hop + 1)) for hop in later]
    items = [layered(seal(report, to=server, bound=bound), round_, group=group, name=name)]
    items += [
        layered(trap, round_, group=group, name=name, last=hop)
        for hop, trap in zip(later, traps, strict=True)
    ]
    body = b"".join(_shuffled(items, entropy))
    registrations = tuple(
        Registration(
            hop, group, round_.digest, commitment(trap, digest=round_.digest, group=group, hop=hop)
        ).encode()
        for hop, trap in zip(later, traps, strict=True)
    )
    return Parcel(Upload(group, round_.digest, name, body).encode(round_), registrations)


def layered(
    text: bytes, round_: Round, *, group: int, name: bytes, last: int | None = None
) -> bytes:
    """Seal bytes to each shuffler up to the last, or the one at a place, the first one last."""
    shufflers, digest = round_.terms.shufflers, round_.digest
    for hop in reversed(range(len(shufflers) if last is None else last + 1)):
        to = SealingKey(round_.suite, bytes.fromhex(shufflers[hop].sealing))
        named = bytes(ID_SIZE) if hop else name
        bound = binding(Purpose.LAYER, digest=digest, group=group, hop=hop, upload=named)
        text = seal(text, to=to, bound=bound)
    return text


def _shuffled(items: Sequence[bytes], entropy: Entropy) -> list[bytes]:
    """Put items into a uniformly random order."""
    left, drawn = list(items), []
    while len(left) > 1:
        drawn.append(left.pop(entropy.integer(len(left))))
    return drawn + left
