"""Reports for `bench scale`, sealed in bulk by processes."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import chain, islice
from typing import Final

import numpy as np

from bench._curves import CORES, pool
from bench._staged import OVERHEAD
from coatcheck.entropy import system
from coatcheck.protocol.agreement import SignedTerms, verify_signatures
from coatcheck.protocol.envelope import Purpose, binding, seal
from coatcheck.protocol.keys import KeyPairs, SealingKey
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.randomizers import from_params

CHUNK: Final = 2_000
_AHEAD: Final = 4


def uploads(signed: SignedTerms, count: int, *, stand_in: bool) -> Iterator[list[Upload]]:
    """Yield uploads that hold a number of reports, decoys among them, in chunks of one group each.

    A few chunks are under way at once, so that memory does not grow with the crowd.
    """
    round_ = verify_signatures(signed)
    groups = len(round_.terms.groups)
    each = count // groups // round_.reports_each(0)
    todo = ((at, group) for at in range(0, each, CHUNK) for group in range(groups))
    with pool() as workers:

        def begun(most: int) -> Iterator[Future[list[Upload]]]:
            for at, group in islice(todo, most):
                yield workers.submit(_some, signed, group, min(CHUNK, each - at), stand_in)

        jobs = deque(begun(_AHEAD * CORES))
        while jobs:
            yield jobs.popleft().result()
            jobs.extend(begun(1))


def _some(signed: SignedTerms, group: int, count: int, stand_in: bool) -> list[Upload]:  # noqa: FBT001 - for a pool
    round_ = verify_signatures(signed)
    of, server = round_.terms.groups[group], round_.terms.server
    randomizer = from_params(of.randomizer)
    form = PayloadFormat.between(randomizer.low, randomizer.high)
    items = round_.items_each(group)  # at a single shuffler all are reports
    places = np.random.default_rng().random((count * items, 2))
    reports = iter(randomizer.randomize(places, system()).tolist())
    # One key to receive with for all: to draw one is the person's work, and no role's.
    public = KeyPairs(CLASSICAL, system().token(32)).opening.public_raw
    to_server = SealingKey(CLASSICAL, bytes.fromhex(server.sealing))
    to_shuffler = SealingKey(CLASSICAL, bytes.fromhex(round_.terms.shufflers[0].sealing))
    inner = binding(Purpose.REPORT, digest=round_.digest, group=group)
    uploads = []
    for _ in range(count):
        name, body = system().token(16), b""
        layer = binding(Purpose.LAYER, digest=round_.digest, group=group, upload=name)
        for report in islice(reports, items):
            contact = public + system().token(31) + b"\1"
            text = bytes((1, group)) + contact + form.encode(report) + bytes(of.note_size)
            if stand_in:
                body += text + bytes(2 * OVERHEAD)
            else:
                body += seal(seal(text, to=to_server, bound=inner), to=to_shuffler, bound=layer)
        uploads.append(Upload(group, round_.digest, name, body))
    return uploads


def in_groups(chunks: Iterator[list[Upload]], size: int = 1000) -> Iterator[list[Upload]]:
    """Yield items in groups as large as a commit's."""
    everybody = chain.from_iterable(chunks)
    while group := list(islice(everybody, size)):
        yield group
