"""Source limits: no source keeps others out by holding connections or by many requests."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from coatcheck.errors import Misuse
from coatcheck.protocol.oblivious_http import GATEWAY_PATH
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import ProcessSettings
from coatcheck.services.web.connections import SourceLimits, Stage
from coatcheck.services.web.routing import Problem
from support.service_rounds import QUICK, get, whole_round

STRANGER, PERSON = "127.0.0.2", "127.0.0.1"
HALF_OPEN = 2_300


class Caller:
    """A connection as the source limits see it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.is_away = False

    def reject(self) -> None:
        """Record the rejection."""
        self.is_away = True


def source_limits(**more: object) -> SourceLimits:
    """Return source limits with these settings."""
    settings = {"name": "x", "connections": 6, "connections_each": 3, "requests_each": 2, **more}
    return SourceLimits(ProcessSettings(**settings), steady=lambda: 0.0)  # type: ignore[arg-type]


def enter(
    limits: SourceLimits, host: str, count: int, stage: Stage = Stage.SENDING
) -> list[Caller]:
    """Open `count` connections from a host."""
    callers = [Caller(stage) for _ in range(count)]
    for one in callers:
        limits.enter(one, host)
    return callers


def away(callers: list[Caller]) -> list[bool]:
    """Return which callers were rejected."""
    return [one.is_away for one in callers]


def test_the_oldest_idle_connection_of_a_source_goes() -> None:
    """A source with too many connections loses its idle ones, the oldest first."""
    limits = source_limits()
    assert away(enter(limits, "192.0.2.1", 5)) == [True, True, False, False, False]
    assert away(enter(limits, "192.0.2.2", 3)) == [False] * 3


def test_a_request_that_is_answered_is_not_dropped() -> None:
    """Busy connections stay; a new one from the same source is rejected."""
    limits = source_limits()
    busy = enter(limits, "192.0.2.1", 3, Stage.ASKING)
    assert away(enter(limits, "192.0.2.1", 2)) == [True, True]
    assert away(busy) == [False] * 3
    for one in busy:
        limits.leave(one)
        limits.leave(one)
    assert away(enter(limits, "192.0.2.1", 3)) == [False] * 3


def test_connections_of_a_source_are_counted_by_stage() -> None:
    """Half-sent requests drive out half-sent ones only, and idle connections idle ones only."""
    limits = source_limits(connections=60)
    people = [
        *enter(limits, "192.0.2.1", 3, Stage.IDLE),
        *enter(limits, "192.0.2.1", 2, Stage.ASKING),
    ]
    assert away(enter(limits, "192.0.2.1", 9)) == [True] * 6 + [False] * 3
    assert away(people) == [False] * 5
    assert away(enter(limits, "192.0.2.1", 1, Stage.IDLE)) == [False]
    assert away(people) == [True, *[False] * 4]


def test_in_a_full_service_the_larger_stage_of_the_largest_source_gives_way() -> None:
    """A newcomer gets a place that is idle or half-sent, and none of a request that waits."""
    limits = source_limits()
    idle, sending = enter(limits, "192.0.2.1", 3, Stage.IDLE), enter(limits, "192.0.2.1", 2)
    enter(limits, "192.0.2.2", 1)
    assert away(enter(limits, "192.0.2.3", 1)) == [False]
    assert away([*idle, *sending]) == [True, *[False] * 4]
    limits = source_limits()
    busy = enter(limits, "192.0.2.1", 2, Stage.ASKING) + enter(limits, "192.0.2.1", 1)
    enter(limits, "192.0.2.2", 3, Stage.ASKING)
    assert away(enter(limits, "192.0.2.3", 1)) == [False]
    assert away(busy) == [False, False, True]


def test_when_all_are_taken_the_largest_source_gives_way() -> None:
    """The source with the most connections loses one to a newcomer from another source."""
    limits = source_limits()
    many = enter(limits, "192.0.2.1", 3)
    enter(limits, "192.0.2.2", 2)
    enter(limits, "192.0.2.3", 1)
    assert away(enter(limits, "192.0.2.4", 1)) == [False]
    assert away(many) == [True, False, False]


def test_a_source_is_an_address_or_a_network() -> None:
    """An IPv6 network of 64 bits is one source; an IPv4 address inside IPv6 is that address."""
    limits = source_limits()
    first = enter(limits, "2001:db8::1", 3)
    enter(limits, "2001:db8::2", 1)
    assert away(first) == [True, False, False]
    assert away(enter(limits, "2001:db8:0:1::1", 1)) == [False]
    limits = source_limits()
    mixed = enter(limits, "192.0.2.1", 3)
    enter(limits, "::ffff:192.0.2.1", 1)
    assert away(mixed) == [True, False, False]


def test_a_proxy_stands_for_many_people() -> None:
    """A proxy's connections count in total only; the header that it adds names the source."""
    limits = source_limits(proxies=("192.0.2.0/24",), source_header="X-Forwarded-For")
    assert away(enter(limits, "192.0.2.1", 6)) == [False] * 6

    def ask(client: str, *values: bytes) -> None:
        headers = [(b"x-forwarded-for", value) for value in values]
        limits.check({"client": (client, 1), "headers": headers, "path": "/rounds"})

    for _ in range(100):
        ask("192.0.2.1")  # without the header no source is limited
    for _ in range(20):
        ask("192.0.2.1", b"203.0.113.9, 198.51.100.1")
    with pytest.raises(Problem, match="network address"):
        ask("192.0.2.1", b"203.0.113.8, 198.51.100.1")  # what a client wrote itself is no source
    ask("192.0.2.1", b"203.0.113.9, 198.51.100.2")
    for _ in range(20):
        ask("198.51.100.7", b"203.0.113.1")  # no proxy: its header is not believed
    with pytest.raises(Problem):
        ask("198.51.100.7", b"203.0.113.2")
    with pytest.raises(Misuse, match="proxies"):
        source_limits(proxies=("somewhere",))


def test_requests_of_a_source_have_a_pace() -> None:
    """A source may send two requests a second and twenty at once; others are not slowed."""
    now = [0.0]
    settings = ProcessSettings(name="x", requests_each=2)
    limits = SourceLimits(settings, steady=lambda: now[0])

    def ask(host: str, path: str = "/rounds") -> None:
        limits.check({"client": (host, 1), "headers": [], "path": path})

    for _ in range(20):
        ask("192.0.2.1")
    with pytest.raises(Problem):
        ask("192.0.2.1")
    ask("192.0.2.2")
    now[0] += 1.0
    ask("192.0.2.1")
    ask("192.0.2.1")
    with pytest.raises(Problem):
        ask("192.0.2.1")
    for _ in range(390):
        ask("192.0.2.3", GATEWAY_PATH)  # a relay asks for many
    with contextlib.suppress(Problem):
        for _ in range(20):
            ask("192.0.2.3", GATEWAY_PATH)
    with pytest.raises(Problem):
        ask("192.0.2.3", GATEWAY_PATH)
    limits.check({"client": None, "headers": [], "path": "/rounds"})  # came through a gateway


@contextlib.contextmanager
def watched(url: str) -> Iterator[list[int]]:
    """Request /healthz repeatedly, each time on a new connection; yield the status codes."""
    statuses: list[int] = []
    end = threading.Event()

    def ask() -> None:
        while not end.is_set():
            statuses.append(get(f"{url}/healthz").status_code)

    watcher = threading.Thread(target=ask)
    watcher.start()
    try:
        yield statuses
        seen = len(statuses)
        while len(statuses) < seen + 3:
            end.wait(0.01)
    finally:
        end.set()
        watcher.join()


def connect(url: str, source: str) -> socket.socket:
    """Connect from an address of this machine."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Services with the limits of a real deployment, and a deadline longer than any test."""
    real = {"connections_each": 200, "requests_each": 20, "deadline": 600.0}
    with Cluster(tmp_path_factory.mktemp("limits"), extra={**QUICK, **real}) as cluster:
        yield cluster


@pytest.mark.service
@pytest.mark.parametrize("source", [STRANGER, PERSON])
@pytest.mark.parametrize(
    "begin", [b"GET /rounds HT", b"POST /rounds HTTP/1.1\r\ncontent-length: 9\r\n\r\n"]
)
def test_half_sent_requests_keep_nobody_out(local: Cluster, source: str, begin: bytes) -> None:
    """While one host holds 2,300 half-sent requests, /healthz answers and a round completes."""
    url, held = local.url("shuffler-1"), []
    try:
        with watched(url) as statuses:
            for _ in range(HALF_OPEN):
                one = connect(url, source)
                held.append(one)
                with contextlib.suppress(OSError):
                    one.sendall(begin)
            name = f"half {source} {len(begin)}"
            asyncio.run(whole_round(local, name))
        assert set(statuses) == {200}
    finally:
        for one in held:
            one.close()


@pytest.mark.service
def test_an_endless_header_keeps_nobody_out(local: Cluster) -> None:
    """Two connections send 43 MB of header each: the bytes are discarded and /healthz answers."""
    url = local.url("shuffler-1")

    def pour(answers: list[bytes]) -> None:
        with connect(url, STRANGER) as one, contextlib.suppress(OSError):
            one.sendall(b"GET /healthz HTTP/1.1\r\n")
            for _ in range(43):
                one.sendall(b"x-filler: " + b"a" * (1 << 20))
            answers.append(one.recv(1 << 16))

    answers: list[bytes] = []
    with watched(url) as statuses:
        pourers = [threading.Thread(target=pour, args=(answers,)) for _ in range(2)]
        for one in pourers:
            one.start()
        for one in pourers:
            one.join()
    assert set(statuses) == {200}
    assert all(b" 431 " in answer for answer in answers if answer)


@pytest.mark.service
def test_a_source_that_floods_delays_only_itself(local: Cluster) -> None:
    """Junk uploads beyond a source's rate get 429, while people from other sources take part."""
    url = local.url("shuffler-1")
    where = f"/rounds/{'00' * 32}/uploads"
    head = f"POST {where} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode()
    with connect(url, "127.0.0.3") as one, one.makefile("rb") as stream:
        statuses = []
        for _ in range(1200):
            one.sendall(head)
            statuses.append(int(stream.readline().split()[1]))
            length = 0
            while (line := stream.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            stream.read(length)
    assert set(statuses) == {404, 429}
    assert statuses[:150] == [404] * 150
    asyncio.run(whole_round(local, "beside a flood"))


@pytest.mark.service
def test_public_counts_are_coarse(local: Cluster) -> None:
    """Only the operator reads /metrics and exact counts; others see a power of two."""
    headers = {"authorization": f"Bearer {local.token}"}
    for name in local.names:
        page = f"{local.url(name)}/metrics"
        assert get(page).status_code == 403
        assert "coatcheck_role" in get(page, headers=headers).text
