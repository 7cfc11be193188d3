"""Bundles: uploads as they are stored, by a name each, with the bodies of a commit sealed together.

A name is a keyed hash. A bundle holds the uploads of one group of one commit, ordered by name and
under a key that looks random: what came first shows neither in it nor in the table. SPEC section
10.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from coatcheck.errors import Unsealable
from coatcheck.protocol.parcels import ID_SIZE, Upload
from coatcheck.stores.vault import RoundKey

Named = tuple[bytes, bytes, bytes | None]
"""An upload's name, the hash that tells its bytes from others, and the name of its token."""
Given = tuple[Named, Upload]
Bundle = tuple[int, int, int, bytes]
"""Its place in the table, the group, how many are in it, and their bytes under the round's key."""
_PLACES: Final = 2**63


def named(key: RoundKey, upload: Upload) -> Named:
    """Write the names of an upload under its round's key."""
    content = key.name(bytes((upload.group,)) + upload.body, kind="body")
    token = upload.token and key.name(upload.token, kind="token")
    return key.name(upload.id, kind="upload"), content, token


def bundled(key: RoundKey, uploads: Sequence[Given]) -> list[Bundle]:
    """Seal new uploads of a round group by group."""
    groups: dict[int, list[Given]] = {}
    for one in uploads:
        groups.setdefault(one[1].group, []).append(one)
    return [_sealed(key, group, sorted(of, key=name_of)) for group, of in sorted(groups.items())]


def name_of(one: Given) -> bytes:
    """Give the name of an upload: uploads are ordered by it."""
    return one[0][0]


def _sealed(key: RoundKey, group: int, uploads: Sequence[Given]) -> Bundle:
    text = b"".join([upload.id + upload.body for _, upload in uploads])
    mark = key.name(b"".join(map(name_of, uploads)), kind="bundle")
    place = int.from_bytes(mark[:8], "big") % _PLACES
    size = len(uploads)
    return place, group, size, key.seal(text, *_bound(uploads[0][1].digest, place, group, size))


def unbundled(key: RoundKey, digest: bytes, bundle: Bundle) -> Iterator[tuple[bytes, bytes]]:
    """Give id and body of each upload in a bundle.

    One that is not as it was put has as many uploads without a body: layers that do not open.
    """
    place, group, size, sealed = bundle
    try:
        text = key.open(sealed, *_bound(digest, place, group, size))
    except Unsealable:
        text = b"".join(
            place.to_bytes(8, "big") + number.to_bytes(8, "big") for number in range(size)
        )
    # Cut by `struct`, which takes a third of the time of slices: a crowd has millions.
    return struct.iter_unpack(f"{ID_SIZE}s{len(text) // size - ID_SIZE}s", text)


def _bound(digest: bytes, place: int, group: int, size: int) -> tuple[bytes, ...]:
    return digest, b"bundle", place.to_bytes(8, "big"), bytes((group,)), size.to_bytes(4, "big")
