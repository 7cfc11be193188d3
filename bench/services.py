"""What durability costs, and what a whole round costs over HTTP: ratios in one run.

Uploads are sent over 64 connections to the same server with no store, SQLite and PostgreSQL, in
turns, and to a bare ASGI callable. CPU is that of the process that accepts uploads; the CPU of
PostgreSQL's processes is printed beside it. Then 20,000 people take part in a round of real
processes.
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import httpx2
from msgspec.structs import fields, replace

from bench import Figure, show
from bench._crowd import round_of
from bench._ingest import Burst, burst, cpu_below
from coatcheck.domains import Box
from coatcheck.protocol.agreement import countersign, read_signed, verify_signatures, write_signed
from coatcheck.protocol.keys import read_keys
from coatcheck.protocol.terms import Anybody
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.server.drafts import draft
from coatcheck.services.settings import ServerSettings, read_settings

SECONDS: Final = 3.0
TURNS: Final = 5
PEOPLE: Final = 20_000
_DEFAULTS: Final = {one.name: one.default for one in fields(ServerSettings)}
_AS_SHIPPED: Final = {name: _DEFAULTS[name] for name in ("tick", "lease")}
"""A cluster looks at its rounds more often than a service does by default."""


def main() -> int:
    """Measure both and print the figures beside their targets."""
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-bench-"))
    try:
        worst = show(_ingest(folder))
        return max(worst, show(round_of(folder, people=PEOPLE)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plan(name: str, *, minimum: int) -> dict[str, Any]:
    """Return the draft of a round of riders and drivers."""
    square = Box(lo=(0.0, 0.0), hi=(1.0, 1.0)).params()
    mechanism = {"name": "minkowski", "domain": square, "epsilon": 2.0, "radius": 0.5}
    group = {"randomizer": mechanism, "minimum": minimum, "delta": 1e-3}
    return {
        "round": name,
        "task": {"name": "least-cost-matching"},
        "groups": [{"name": name, **group} for name in ("riders", "drivers")],
    }


def _ingest(folder: Path) -> list[Figure]:
    with _postgres(folder) as (url, database):
        kinds = ["bare", "route", "unsigned", "none", "sqlite", *(["postgresql"] if url else [])]
        stores = {"sqlite": "sqlite:ingest.db", "postgresql": url}
        bursts: dict[str, list[Burst]] = {kind: [] for kind in kinds}
        beside: list[float] = []
        with _servers(folder, kinds, stores) as running:
            for turn in range(TURNS + 1):
                for kind in kinds:
                    port, pid, path, upload = running[kind]
                    seconds = SECONDS if turn else 1.0
                    before = cpu_below(database)
                    one = asyncio.run(burst(port, path, upload, pid=pid, seconds=seconds))
                    if turn:
                        bursts[kind].append(one)
                    if turn and kind == "postgresql":
                        beside.append((cpu_below(database) - before) / one.done)
    figures = _figures(bursts)
    if beside:
        value = statistics.median(beside) * 1e6
        figures.append(
            Figure(what="  and CPU of PostgreSQL's own processes", value=value, unit="µs")
        )
    return figures


def _figures(bursts: dict[str, list[Burst]]) -> list[Figure]:
    def middle(kind: str, what: str) -> float:
        return float(statistics.median(getattr(one, what) for one in bursts[kind]))

    def ratio(kind: str, to: str, what: str) -> float:
        pairs = zip(bursts[kind], bursts[to], strict=True)
        return float(statistics.median(getattr(a, what) / getattr(b, what) for a, b in pairs))

    figures = [
        Figure(
            what="upload route CPU / bare ASGI callable",
            value=ratio("route", "bare", "cpu"),
            unit="x",
            target=1.5,
        ),
        Figure(
            what="  with waiting for a group to commit",
            value=ratio("unsigned", "bare", "cpu"),
            unit="x",
        ),
        Figure(
            what="  and with the receipt's signature (Ed25519)",
            value=ratio("none", "bare", "cpu"),
            unit="x",
        ),
        Figure(what="CPU of the bare callable", value=middle("bare", "cpu") * 1e6, unit="µs"),
        Figure(what="uploads per second, no store", value=middle("none", "rate"), unit="/s"),
    ]
    for kind, most in (("sqlite", 3.3), ("postgresql", 2.2)):
        if kind not in bursts:
            print(f"bench: {kind} is not installed here and was left out")
            continue
        figures += [
            Figure(
                what=f"CPU of a signed upload durable in {kind} / bare callable",
                value=ratio(kind, "bare", "cpu"),
                unit="x",
                target=most,
            ),
            Figure(what=f"  that is, in {kind}", value=middle(kind, "cpu") * 1e6, unit="µs"),
            Figure(what=f"uploads per second, {kind}", value=middle(kind, "rate"), unit="/s"),
            Figure(
                what=f"no store / durable in {kind} (rate)",
                value=ratio("none", kind, "rate"),
                unit="x",
                target=2.0,
            ),
            Figure(
                what=f"p99 in {kind} / p99 with no store",
                value=ratio(kind, "none", "p99"),
                unit="x",
                target=2.0,
            ),
            Figure(what=f"p99 in {kind}", value=middle(kind, "p99") * 1e3, unit="ms"),
        ]
    return figures


@contextmanager
def _servers(
    folder: Path, kinds: list[str], stores: dict[str, str]
) -> Iterator[dict[str, tuple[int, int, str, bytes]]]:
    """Start every variant with one open round; return its port, process, path and an upload."""
    processes: list[subprocess.Popen[bytes]] = []
    running = {}
    try:
        for number, kind in enumerate(kinds):
            port = 18_700 + number
            place = folder / kind
            local = Cluster(
                place, stores={"shuffler-1": stores.get(kind, "memory:")}, extra=_AS_SHIPPED
            )
            command = [sys.executable, "-m", "bench._ingest", kind, str(place / "shuffler-1.toml")]
            process = subprocess.Popen([*command, str(port)])  # noqa: S603 - our own command
            processes.append(process)
            signed, round_, digest = terms_of(local, url=f"http://127.0.0.1:{port}")
            if kind != "bare":
                _open(port, digest, signed)
            head = bytes((1, 1, 0, 0)) + bytes.fromhex(digest)
            upload = head + bytes(round_.upload_sizes[0] - len(head))
            running[kind] = (port, process.pid, f"/rounds/{digest}/uploads", upload)
        time.sleep(1)
        yield running
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def terms_of(local: Cluster, *, url: str = "http://127.0.0.1:1") -> tuple[bytes, Any, str]:
    """Sign terms without a server's process: only the shuffler is measured."""
    config = local.folder / "server.toml"
    settings = read_settings(config, role="server", kind=ServerSettings)
    now = int(time.time())
    shuffler = read_keys(local.folder / "shuffler-1.key")
    board = read_keys(local.folder / "board.key").public
    times = (now, now + 86_400, now + 90_000)
    raw = draft(
        settings,
        plan("bench", minimum=1000),
        times,
        url="http://127.0.0.1:2",
        shufflers=[replace(shuffler.public, url=url).shuffler(Anybody())],
        board=replace(board, url="http://127.0.0.1:3").notary,
    )
    signed = countersign(read_signed(raw), keys=shuffler.pairs, pledged={})
    round_ = verify_signatures(signed)
    return write_signed(signed), round_, round_.digest.hex()


def _open(port: int, digest: str, signed: bytes) -> None:
    headers = {"content-type": "application/json"}
    for _ in range(200):
        try:
            url = f"http://127.0.0.1:{port}/rounds/{digest}"
            if httpx2.put(url, content=signed, headers=headers).is_success:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the shuffler did not open the round")


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[str, int]]:
    """Start a PostgreSQL for the bench if it is installed; return its address and process."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    postgresql: Any = import_module("support.postgresql")
    if postgresql.installed() is None:
        yield "", 0
        return
    folder.chmod(0o755)
    postgres = postgresql.Postgres(folder, fsync=True)
    try:
        pid = (postgres.folder / "postmaster.pid").read_text(encoding="ascii").split()[0]
        yield postgres.database(), int(pid)
    finally:
        postgres.end()
