"""Hostile and broken requests against running services: clear errors, and others are served."""

import asyncio
import contextlib
import json
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from coatcheck.protocol.ticket import Ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from coatcheck.services.web.routing import KINDS
from support.service_rounds import (
    LIMIT,
    PATIENCE,
    QUICK,
    Crowd,
    draft,
    get,
    logs,
    post,
    status,
    until,
    whole_round,
)

pytestmark = pytest.mark.service

DEADLINE = 2.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Provide running services with a short deadline."""
    folder = tmp_path_factory.mktemp("hostile")
    with Cluster(folder, extra={**QUICK, "deadline": DEADLINE, "connections": 600}) as local:
        yield local


@pytest.fixture(scope="module")
def url(local: Cluster) -> str:
    """Provide a round that stays open."""
    return local.open_round(draft("long"), closes=3000, expires=6000)


@pytest.fixture(scope="module")
def ticket(local: Cluster, url: str) -> Ticket:
    """Provide a ticket whose report is not sent yet."""
    session = Session(url, path=local.folder / "unsent", trusted=local.trusted)

    async def made() -> Ticket:
        async with session:
            invitation = await session.invitation(group="riders", limit=LIMIT)
            return session.prepare(invitation, (0.5, 0.5), ledger=None)

    return asyncio.run(made())


def problem(answer: httpx2.Response) -> str:
    """Check that an answer is one of our problems, and return its name."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    name: str = found["type"].rpartition("/")[2]
    assert KINDS[name].status == answer.status_code == found["status"]
    assert set(found) == {"type", "title", "status", "detail"}
    return name


def address(url: str) -> tuple[str, int]:
    """Return host and port."""
    host, _, port = url.partition("//")[2].partition("/")[0].rpartition(":")
    return host, int(port)


def test_every_length_is_refused_but_one(url: str, ticket: Ticket) -> None:
    """From nothing to twice the size, only the exact size passes; each refusal is a problem."""
    size = len(ticket.upload)
    stuff = ticket.upload + os.urandom(size)
    with httpx2.Client(timeout=PATIENCE) as http:
        for length in (*range(size), *range(size + 1, 2 * size + 1)):
            answer = http.post(f"{url}/uploads", content=stuff[:length])
            assert problem(answer) in {"malformed", "too-large"}, length
        assert http.post(f"{url}/uploads", content=ticket.upload).status_code == 201


def test_the_same_bytes_get_a_receipt_again(url: str, ticket: Ticket) -> None:
    """A retry is no second report; other bytes under the id are a conflict."""
    first = post(f"{url}/uploads", content=ticket.upload)
    before = status(url)["groups"]
    again = post(f"{url}/uploads", content=ticket.upload)
    assert (again.status_code, again.content[:84]) == (201, first.content[:84])
    assert status(url)["groups"] == before
    other = ticket.upload[:-1] + bytes([ticket.upload[-1] ^ 1])
    assert problem(post(f"{url}/uploads", content=other)) == "conflict"
    flipped = bytes([ticket.upload[0] ^ 1]) + ticket.upload[1:]
    assert problem(post(f"{url}/uploads", content=flipped)) == "malformed"


def test_a_large_body_is_refused_before_it_is_read(url: str, local: Cluster) -> None:
    """100 MB, announced or chunked, are refused at once and use no memory."""
    pid = local.processes["shuffler-1"].pid
    before = _memory(pid)
    path = "/" + url.partition("//")[2].partition("/")[2] + "/uploads"
    announced = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n"
    chunked = f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    for head, piece in (
        (announced, b"x" * 65536),
        (chunked, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ):
        with socket.create_connection(address(url)) as raw:
            raw.settimeout(60)
            raw.sendall(head.encode() + piece)
            assert b" 413 " in raw.recv(4096)
            with contextlib.suppress(OSError):  # the deadline may hang up, as it should
                for _ in range(1500):
                    raw.sendall(piece)
        assert _memory(pid) - before < 30_000_000
    for name in ("server", "board"):
        answer = httpx2.put(
            f"{local.url(name)}/rounds/{'0' * 64}", content=b"[" * 1_000_000, timeout=PATIENCE
        )
        assert problem(answer) in {"too-large", "method"}


@pytest.mark.parametrize("size", [17, 16_384])
def test_endless_headers_harm_nobody(size: int, url: str, local: Cluster) -> None:
    """A header without an end is refused early, and others are served meanwhile."""
    host = local.url("shuffler-1")
    with socket.create_connection(address(url)) as raw:
        raw.settimeout(60)
        raw.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: ")
        with contextlib.suppress(OSError):
            for _ in range(60_000 // size):
                raw.sendall(b"a" * size)
        assert get(f"{host}/healthz").status_code == 200
        assert b" 431 " in raw.recv(4096)
        with contextlib.suppress(OSError):
            for _ in range(40_000_000 // 16_384):
                raw.sendall(b"a" * 16_384)
        assert get(f"{host}/healthz").status_code == 200


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_slow_and_half_sent_requests_harm_nobody(url: str, local: Cluster) -> None:
    """The deadline ends 300 half-sent requests, and people are served meanwhile."""
    host = address(url)
    path = "/" + url.partition("//")[2].partition("/")[2] + "/uploads"
    halves = [
        b"",
        b"POST ",
        f"POST {path} HTTP/1.1\r\nhost: x\r\nx-slow: ".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 200\r\n\r\nabc".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".encode(),
    ]
    sockets = [socket.create_connection(host) for _ in range(300)]
    begun = time.monotonic()
    for number, raw in enumerate(sockets):
        raw.sendall(halves[number % len(halves)])

    async def honest() -> None:
        async with HttpClient() as peers:
            await Crowd(local, url).join(peers, people=10)

    asyncio.run(honest())
    # One after another the half-sent ones would have taken ten minutes.
    assert time.monotonic() - begun < 30 * DEADLINE
    for number, raw in enumerate(sockets):
        raw.settimeout(PATIENCE)
        if number % 2:  # some trickle on, which buys no time
            with contextlib.suppress(OSError):
                raw.sendall(b"a")
        said = b""
        try:
            while part := raw.recv(4096):
                said += part
        except ConnectionError:
            pass
        assert not said or b" 408 " in said or b" 400 " in said
        raw.close()


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    """Above its limit a service answers 429 and closes, and goes on once some have left."""
    with Cluster(tmp_path, extra={**QUICK, "connections": 20}) as local:
        board = local.url("board")
        held = [socket.create_connection(address(board)) for _ in range(40)]
        until(lambda: len(select.select(held, [], [], 0)[0]) >= 20)
        for raw in select.select(held, [], [], 0)[0]:
            said = raw.recv(4096)
            assert b" 429 " in said
            assert b"retry-after" in said
        for raw in held:
            raw.close()
        until(lambda: get(f"{board}/healthz").status_code == 200)


def test_wrong_requests_get_their_problem(local: Cluster, url: str) -> None:
    """Wrong addresses, methods, tokens and documents each get their problem."""
    shuffler, server, board = (local.url(name) for name in local.names)
    nowhere = f"{shuffler}/rounds/{'0' * 64}"
    assert problem(post(f"{nowhere}/uploads", content=b"x")) == "not-found"
    assert problem(get(nowhere)) == "not-found"
    assert problem(get(f"{shuffler}/nowhere")) == "not-found"
    assert problem(get(f"{shuffler}/rounds/zz")) == "unprocessable"
    for other in ("uploads%0a", "uploads%20", "uploads/", "Uploads", "%0auploads"):
        assert problem(post(f"{url}/{other}", content=b"x")) == "not-found"
    for other in (f"{url}%0a", f"{url}%20", f"{url.upper().replace('HTTP:', 'http:')}"):
        assert problem(get(other)) in {"unprocessable", "not-found"}
    assert problem(get(f"{url}/uploads")) == "method"
    taken = httpx2.delete(f"{shuffler}/rounds")
    assert (problem(taken), taken.headers["allow"]) == ("method", "GET, POST")
    assert problem(post(f"{server}/rounds", json={"draft": {}})) == "forbidden"
    wrong = {"authorization": "Bearer wrong"}
    closing = post(f"{url}/closing", json={}, headers=wrong)
    assert problem(closing) == "forbidden"
    mine = {"authorization": f"Bearer {local.token}"}
    assert problem(post(f"{url}/closing", json={}, headers=mine)) == "refused"
    plan = {"draft": {"round": "x"}}
    assert problem(post(f"{server}/rounds", json=plan, headers=mine)) == "unprocessable"
    digest = url.rpartition("/")[2]
    for where in (server, board):
        what = "batch" if where == server else "bulletin"
        answer = post(f"{where}/rounds/{digest}/{what}", content=b"x" * 1000)
        assert problem(answer) == "forbidden"
    letter = post(f"{board}/rounds/{digest}/letters", content=b"x")
    assert problem(letter) == "malformed"
    assert problem(get(f"{board}/rounds/{digest}/bulletin")) == "not-found"


def test_terms_of_a_stranger_are_not_signed(local: Cluster, url: str) -> None:
    """A shuffler signs for servers it trusts, and one version per name."""
    offer = get(url).json()["signed"]
    strange = json.loads(offer["document"])
    strange["server"]["verifying"] = strange["board"]["verifying"]
    strange["board"]["verifying"] = "11" * 32
    bad = {**offer, "document": json.dumps(strange)}
    shuffler = local.url("shuffler-1")
    assert problem(post(f"{shuffler}/rounds", json=bad)) in {"forbidden", "malformed"}
    blank = {**offer, "shufflers": [None]}
    assert post(f"{shuffler}/rounds", json=blank).json() == offer
    forged = {**offer, "server": "00" * 64}
    assert problem(post(f"{shuffler}/rounds", json=forged)) == "forbidden"


def test_nothing_about_a_person_is_written_down(local: Cluster, url: str, ticket: Ticket) -> None:
    """Logs and metrics hold no id, key, address, token or network address of a person."""
    asyncio.run(whole_round(local, "written"))
    post(f"{url}/uploads", content=b"garbage")
    written = logs(local.folder)
    for name in local.names:
        page = f"{local.url(name)}/metrics"
        assert get(page).status_code == 403
        written += get(page, headers={"authorization": f"Bearer {local.token}"}).text
    private = [ticket.upload[36:52].hex(), ticket.keys.address.hex(), local.token]
    assert not [text for text in private if text in written]
    # A service may name another one and a round, which are public, when it has to wait for it.
    people = re.sub(r"rounds/[0-9a-f]{64}", "", written)
    for name in local.names:
        people = people.replace(local.url(name), "")
    assert not re.findall(r"\b[0-9a-f]{24,}\b", people.replace(url.rpartition("/")[2], ""))
    assert "127.0.0.1" not in people
    assert "_created" not in written  # nor when somebody came
    assert 'coatcheck_taken_total{verdict="new"}' in written
    assert 'coatcheck_problems_total{type="malformed"}' in written


@schemathesis.serializer("message/ohttp-req")
def sealed(_: object, value: object) -> bytes:
    """Send made-up bytes to a gateway unchanged."""
    data = getattr(value, "data", value)
    return data if isinstance(data, bytes) else str(data).encode()


@pytest.mark.parametrize("name", ["shuffler-1", "server", "board"])
def test_the_documents_tell_the_truth(name: str, local: Cluster, url: str) -> None:
    """Generated requests get only answers that the OpenAPI document describes."""
    assert url
    schema = schemathesis.openapi.from_url(f"{local.url(name)}/openapi.json")

    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    # All but the document itself, which schemathesis leaves out.
    listed = get(f"{local.url(name)}/openapi.json").json()["paths"]
    assert len(operations) == sum(map(len, listed.values())) - 1
    for operation in operations:

        @settings(
            max_examples=8,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def one(case: schemathesis.Case[Any]) -> None:
            headers = {"authorization": f"Bearer {local.token}"}
            # A document cannot say which signatures hold, so well-shaped ones may be refused. And
            # what tries without the token would get the one above.
            left_out = [positive_data_acceptance, ignored_auth]
            case.call_and_validate(headers=headers, excluded_checks=left_out)

        one()
