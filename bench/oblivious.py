"""Oblivious HTTP: a million broken messages, and what sealing and opening cost.

The decoder must accept or reject every broken message; anything else ends the bench with a
traceback.
"""

from typing import Final

from bench import Figure, quickest, show
from bench._messages import CONFIG, KEY, KINDS, outcomes
from coatcheck.protocol.keys import OpeningKey
from coatcheck.protocol.oblivious_http import (
    OVERHEAD,
    Request,
    Response,
    message_size,
    seal_request,
)
from coatcheck.protocol.terms import CLASSICAL

EACH: Final = 200_000
TIMES: Final = 200


def main() -> int:
    """Decode the broken messages, then measure."""
    return show([*_broken(), *_costs()])


def _broken() -> list[Figure]:
    figures = []
    for kind in KINDS:
        read = sum(outcomes(kind, EACH, seed=17))
        figures.append(Figure(what=f"broken, {kind}: accepted", value=read, unit=""))
    total = EACH * len(KINDS)
    return [Figure(what="broken messages, none crashed", value=total, unit=""), *figures]


def _costs() -> list[Figure]:
    one, other = OpeningKey(CLASSICAL, bytes(range(32))), OpeningKey(CLASSICAL, bytes(range(1, 33)))
    public = other.handle.public_key()
    text = Request(b"GET", b"https", b"a", b"/").encode(message_size(100, overhead=OVERHEAD))
    sealed = seal_request(text, CONFIG)

    def exchange() -> None:
        one.handle.exchange(public)  # type: ignore[arg-type, union-attr] # classical

    def gateway() -> None:
        opened = KEY.open(sealed.raw)
        Request.decode(opened.text)
        size = message_size(100, overhead=opened.overhead)
        opened.answer(Response(200, (), b"x" * 80).encode(size))

    def repeated(job: object) -> object:
        return lambda: [job() for _ in range(TIMES)]  # type: ignore[operator] # a callable

    jobs = (exchange, lambda: seal_request(text, CONFIG), gateway)
    dh, client, both = quickest(*(repeated(job) for job in jobs))  # type: ignore[arg-type]
    return [
        Figure(what="one X25519 operation", value=dh / TIMES * 1e6, unit="µs"),
        Figure(what="client: seal a request, in X25519 operations", value=client / dh, unit="x"),
        Figure(what="gateway: open and answer, in X25519 operations", value=both / dh, unit="x"),
    ]
