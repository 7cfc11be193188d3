"""Long answers: sent in pieces or as a requested range, and never held in memory whole."""

import asyncio
import os
from typing import Any

import pytest

from coatcheck.services.web.connections import MOST, respond_long
from coatcheck.services.web.routing import Long, Problem

RAW = os.urandom((1 << 20) + 7)


def answered(
    asked: bytes = b"", *, most: int = 2**40
) -> tuple[int, dict[bytes, bytes], list[bytes]]:
    """Send a long answer; return its status, headers and pieces."""
    sent: list[Any] = []
    read: list[int] = []

    async def part(start: int, end: int) -> bytes:
        read.append(end - start)
        return RAW[start:end]

    async def send(message: Any) -> None:
        sent.append(message)

    found = Long(headers={"cache-control": "public"}, size=len(RAW), read=part)
    given = {"headers": [(b"range", asked)] if asked else [], MOST: most}
    asyncio.run(respond_long(given, send, 200, found, media=b"x/y"))
    assert max(read) <= 1 << 18
    start, *rest = sent
    assert [one.get("more_body", False) for one in rest] == [True] * (len(rest) - 1) + [False]
    return start["status"], dict(start["headers"]), [one["body"] for one in rest]


def test_a_long_answer_comes_in_pieces() -> None:
    """The pieces are complete, in order, and have the announced length."""
    status, headers, pieces = answered()
    assert (status, b"".join(pieces), len(pieces)) == (200, RAW, 5)
    assert headers[b"content-length"] == b"%d" % len(RAW)
    assert headers[b"cache-control"] == b"public"


@pytest.mark.parametrize(("first", "last"), [(0, 0), (5, 300_000), (1 << 20, 1 << 30), (9, 8)])
def test_a_range_is_returned(first: int, last: int) -> None:
    """Ranges follow RFC 9110; an empty one is refused."""
    asked = b"bytes=%d-%d" % (first, last)
    if first > last:
        with pytest.raises(Problem):
            answered(asked)
        return
    status, headers, pieces = answered(asked)
    end = min(last + 1, len(RAW))
    assert (status, b"".join(pieces)) == (206, RAW[first:end])
    assert headers[b"content-range"] == b"bytes %d-%d/%d" % (first, end - 1, len(RAW))


def test_a_gateway_gets_ranges_only() -> None:
    """A gateway seals answers whole, so it gets no more than it can seal."""
    with pytest.raises(Problem, match="request ranges"):
        answered(most=1 << 20)
    assert len(b"".join(answered(b"bytes=0-99999999", most=1000)[2])) == 1000
