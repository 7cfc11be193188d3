"""What a relay costs: bytes and CPU of an answer by each way to fetch it, and requests per second.

The ways are measured on boards of 1e4, 1e5 and 1e6 entries in this process; the overhead of
gateway and relay on real processes, by their CPU time.
"""

import asyncio
import io
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench import Figure, show
from bench._ingest import cpu_of
from bench.services import plan, terms_of
from coatcheck.protocol.client import Limit
from coatcheck.protocol.keys import read_keys as read_role
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    OVERHEAD,
    REQUEST_MEDIA,
    GatewayConfig,
    Request,
    message_size,
    read_keys,
    seal_request,
)
from coatcheck.protocol.wire.bulletins import ANSWERED, Bulletin
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.services.board.routes import BoardService
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.relay_client import PIECE
from coatcheck.services.person.session import Session
from coatcheck.services.settings import BoardSettings, read_settings
from coatcheck.services.web.client import HttpClient

SIZES: Final = (10_000, 100_000, 1_000_000)
TIMES: Final = 200
SECONDS: Final = 3.0
TURNS: Final = 5
LINES: Final = 32


def main() -> int:
    """Measure both and print the figures beside their targets."""
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-bench-"))
    try:
        figures = [one for size in SIZES for one in _ways(folder / str(size), size)]
        figures += _overhead(folder / "overhead")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return show(figures)


# -- the ways to fetch an answer


def _ways(folder: Path, size: int) -> list[Figure]:
    service, path, whole = _shown(folder, size)
    config = read_keys(service.gateway.signed().keys)
    subject = f"entries of {size:,}"
    direct, plain = _cpu(service, "GET", path)
    sealed = _sealed(config, "GET", path)
    relayed, answer = _cpu(service, "POST", GATEWAY_PATH, sealed)
    pieces = -(-whole // PIECE)
    return [
        Figure(what=f"{subject}: the whole board", value=whole / 1e3, unit="KB"),
        Figure(what="  through a relay, messages", value=pieces, unit=""),
        Figure(what="  one entry with its proof", value=plain / 1e3, unit="KB", target=4.0),
        Figure(what="  through a relay, sealed and padded", value=answer / 1e3, unit="KB"),
        Figure(what="  board's CPU, one entry", value=direct * 1e3, unit="ms", target=5.0),
        Figure(what="  board's CPU, through a relay", value=relayed * 1e3, unit="ms", target=5.0),
    ]


def _shown(folder: Path, size: int) -> tuple[BoardService, str, int]:
    """Make a board with a number of entries; return the path of one, and the bulletin's size."""
    local = Cluster(folder)
    signed, round_, digest = terms_of(local)
    each = size // 2
    entries = [
        sorted(os.urandom(round_.entry_size(group)) for _ in range(each)) for group in range(2)
    ]
    tallies = [Tally(each), Tally(each)]
    bulletin = Bulletin.compose(entries, ANSWERED, round_.digest, tallies, roots=[bytes(32)])
    server = read_role(folder / "server.key").pairs
    raw = bulletin.signed(server.signing.sign).encode()
    settings = read_settings(folder / "board.toml", role="board", kind=BoardSettings)
    service = BoardService(settings)
    asyncio.run(service.leadership.renew())
    service.store.admit(round_.digest, signed, fence=service.leadership.fence)
    service.commit([(round_, "terms", b"")])
    heading = service.stage(round_, io.BytesIO(raw))
    service.commit([(round_, "bulletin", heading.encode())])
    address = entries[1][each // 3][:16].hex()
    return service, f"/rounds/{digest}/entries/1/{address}", len(raw)


def _cpu(service: BoardService, method: str, path: str, body: bytes = b"") -> tuple[float, int]:
    """Send requests in this process; return the CPU seconds and the answer's bytes of one."""
    headers = [(b"content-type", REQUEST_MEDIA.encode())] if body else []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": headers,
    }
    sizes: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if "status" in message and message["status"] != 200:
            raise RuntimeError(f"{path} answers with {message['status']}")
        sizes.append(len(message.get("body", b"")))

    async def whole() -> float:
        await service(scope, receive, send)
        begun = time.process_time()
        for _ in range(TIMES):
            await service(scope, receive, send)
        return (time.process_time() - begun) / TIMES

    spent = asyncio.run(whole())
    return spent, sizes[-1]


def _sealed(config: GatewayConfig, method: str, path: str, body: bytes = b"") -> bytes:
    text = Request(method.encode(), b"http", b"role", path.encode(), (), body).encode()
    return seal_request(text.ljust(message_size(len(text), overhead=OVERHEAD), b"\0"), config).raw


# -- what gateway and relay cost


def _overhead(folder: Path) -> list[Figure]:
    with Cluster(folder, relay=True) as local:
        url = local.open_round(plan("relayed", minimum=10_000), closes=1, expires=86_000)
        board, shuffler, relay = (local.url(name) for name in ("board", "shuffler-1", "relay"))
        upload = asyncio.run(_upload(url, local))
        at_board, at_shuffler = asyncio.run(_configs(board, shuffler))
        path = url.removeprefix(shuffler) + "/uploads"
        checkpoint = _sealed(at_board, "GET", "/checkpoint")
        handed = _sealed(at_shuffler, "POST", path, upload)
        jobs = {
            "checkpoint": (board, "GET", "/checkpoint", b"", "board"),
            "checkpoint, gateway": (board, "POST", GATEWAY_PATH, checkpoint, "board"),
            "upload": (shuffler, "POST", path, upload, "shuffler-1"),
            "upload, gateway": (shuffler, "POST", GATEWAY_PATH, handed, "shuffler-1"),
            "relay": (relay, "POST", f"/gateways/{board[7:]}", checkpoint, "relay"),
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
        for turn in range(TURNS + 1):
            for name, (where, method, at, body, process) in jobs.items():
                pid = local.processes[process].pid
                one = asyncio.run(_burst(where, method, at, body, pid=pid))
                samples[name] += [one] if turn else []

    def least(name: str) -> float:
        return min(cpu for _, cpu in samples[name])

    rate = max(rate for rate, _ in samples["relay"])
    return [
        Figure(what="CPU of an upload, direct", value=least("upload") * 1e6, unit="µs"),
        Figure(
            what="  through the gateway / direct",
            value=least("upload, gateway") / least("upload"),
            unit="x",
            target=1.6,
        ),
        Figure(what="CPU of a checkpoint, direct", value=least("checkpoint") * 1e6, unit="µs"),
        Figure(
            what="  through the gateway / direct",
            value=least("checkpoint, gateway") / least("checkpoint"),
            unit="x",
        ),
        Figure(what="CPU of a request at the relay", value=least("relay") * 1e6, unit="µs"),
        Figure(what="requests per second through the relay", value=rate, unit="/s"),
    ]


async def _upload(url: str, local: Cluster) -> bytes:
    path, limit = local.folder / "ticket", Limit(epsilon=10.0, delta=1e-3)
    async with Session(url, path=path, trusted=local.trusted) as session:
        ticket = await session.join((0.5, 0.5), group="riders", limit=limit, ledger=None)
    return ticket.upload


async def _configs(*urls: str) -> list[GatewayConfig]:
    async with HttpClient() as peers:
        return [read_keys(await peers.get(url + GATEWAY_PATH)) for url in urls]


async def _burst(
    where: str, method: str, path: str, body: bytes, *, pid: int
) -> tuple[float, float]:
    """Repeat one request; return requests per second, and the process's CPU time for each."""
    host, port = where.removeprefix("http://").split(":")
    media = f"content-type: {REQUEST_MEDIA}\r\n" if "gateway" in path else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{media}content-length: {len(body)}\r\n\r\n"
    raw, end = head.encode() + body, time.perf_counter() + SECONDS

    async def line() -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        done = 0
        while time.perf_counter() < end:
            writer.write(raw)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not lines.startswith(b"http/1.1 20"):
                raise RuntimeError(lines.decode())
            size = lines.partition(b"content-length: ")[2].partition(b"\r")[0]
            await reader.readexactly(int(size))
            done += 1
        writer.close()
        return done

    before, begun = cpu_of(pid), time.perf_counter()
    done = sum(await asyncio.gather(*(line() for _ in range(LINES))))
    return done / (time.perf_counter() - begun), (cpu_of(pid) - before) / done
