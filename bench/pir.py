"""Private retrieval beside the other ways: bytes and CPU of one answer at 1e4, 1e5 and 1e6 entries.

The whole board and one entry through a relay are measured by `bench relay` and `bench board`; here
are the bytes of the first and all of SimplePIR (research-grade, see `bench/_pir.py`).
"""

import time
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np

from bench import Figure, show
from bench._pir import N, answer, ask, hint, recover
from coatcheck.entropy import system

T = TypeVar("T")
SIZES: Final = (10_000, 100_000, 1_000_000)
WIDTH: Final = 192
"""Bytes of an entry with an answer of 128 bytes."""


def main() -> int:
    """Measure and print."""
    return show([one for size in SIZES for one in _measured(size)])


def _measured(size: int) -> list[Figure]:
    source = np.random.default_rng(size)
    database = source.integers(0, 256, (WIDTH, size), dtype=np.uint8)
    seed, place = b"round", size // 3
    few = np.ascontiguousarray(database[:, :8])
    answer(few, np.zeros(8, dtype=np.uint32))  # which compiles it
    built, round_hint = _timed(lambda: hint(database, seed))
    asking, (query, secret) = _timed(lambda: ask(place, size, seed, system()))
    spent, reply = _timed(lambda: answer(database, query))
    read, column = _timed(lambda: recover(reply, round_hint, secret))
    if column != database[:, place].tobytes():
        raise RuntimeError("the answer is not the entry that was asking for")
    down = WIDTH * N * 4 + WIDTH * 4
    return [
        Figure(what=f"{size:,} entries: the whole board", value=size * WIDTH / 1e3, unit="KB"),
        Figure(what="  SimplePIR, down (hint and answer)", value=down / 1e3, unit="KB"),
        Figure(what="  SimplePIR, up (query)", value=size * 4 / 1e3, unit="KB"),
        Figure(what="  board's CPU per answer", value=spent * 1e3, unit="ms"),
        Figure(what="  board's CPU per round (hint)", value=built, unit="s"),
        Figure(what="  person's CPU (query and opening)", value=asking + read, unit="s"),
    ]


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    result = call()
    return time.process_time() - begun, result
