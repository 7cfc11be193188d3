"""A board's memory and time: one real process, many rounds, and a bulletin of a million entries.

The bench reads its resident memory before and after, and its CPU time; then it restarts the board.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bench import Figure, show
from bench._ingest import cpu_of
from bench.services import plan
from coatcheck.protocol.agreement import countersign, read_signed, verify_signatures, write_signed
from coatcheck.protocol.keys import SecretKeys, read_keys
from coatcheck.protocol.terms import Anybody
from coatcheck.protocol.wire.bulletins import ANSWERED, Bulletin
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.services.batch_transfer import delivery_headers
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.server.drafts import draft
from coatcheck.services.settings import ServerSettings, read_settings
from coatcheck.services.web.client import BULK, HttpClient

ENTRIES: Final = 1_000_000
ROUNDS: Final = 1_000
TIMES: Final = 300
GROWTH: Final = 60.0
"""Megabytes by which a process may grow, whatever it shows."""


def main() -> int:
    """Measure and print the figures beside their targets."""
    quick = "--quick" in sys.argv
    entries, rounds = (20_000, 20) if quick else (ENTRIES, ROUNDS)
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-bench-"))
    try:
        local = Cluster(folder)
        local.start("board")
        local.wait_until_leads("board")
        try:
            return show(asyncio.run(_measured(local, entries, rounds)))
        finally:
            local.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measured(local: Cluster, entries: int, rounds: int) -> list[Figure]:
    pid, keys = local.processes["board"].pid, read_keys(local.folder / "server.key")
    async with HttpClient(timeout=600.0) as peers:
        first = await _logged(local, peers, "first")
        await peers.get(f"{first}/logged")
        begun = _resident(pid)
        for number in range(1, rounds):
            await _logged(local, peers, f"round {number}")
        many = _resident(pid)
        path, size = await _publish(local, peers, first, keys, entries)
        held = _resident(pid)
        before = cpu_of(pid)
        sizes = [len(await peers.get(path)) for _ in range(TIMES)]
        spent = (cpu_of(pid) - before) / TIMES
        whole = len(await peers.get(f"{first}/bulletin", most=BULK))
        last = _resident(pid)
        peak = _resident(pid, "VmHWM")
        local.kill("board")
        again = time.perf_counter()
        await asyncio.to_thread(local.start, "board")
        await asyncio.to_thread(local.wait_until_leads, "board")
        restarted = time.perf_counter() - again
        await peers.get(path)
    assert whole == size  # noqa: S101 - a bench
    subject = f"a board of {entries:,} entries"
    return [
        Figure(what="resident memory with one round", value=begun, unit="MB"),
        Figure(what=f"  more with {rounds:,} rounds", value=many - begun, unit="MB", target=GROWTH),
        Figure(what=f"  more with {subject}", value=held - begun, unit="MB", target=GROWTH),
        Figure(what="  more after it was fetched", value=last - begun, unit="MB", target=GROWTH),
        Figure(what="  more at the highest", value=peak - begun, unit="MB", target=GROWTH),
        Figure(what=f"one entry of {entries:,} with its proof", value=max(sizes) / 1e3, unit="KB"),
        Figure(what="  board's CPU", value=spent * 1e3, unit="ms", target=5.0),
        Figure(what="seconds until a new process leads", value=restarted, unit="s"),
    ]


async def _logged(local: Cluster, peers: HttpClient, name: str) -> str:
    """Have the board log a round; return the round's address there."""
    config = local.folder / "server.toml"
    settings = read_settings(config, role="server", kind=ServerSettings)
    shuffler = read_keys(local.folder / "shuffler-1.key")
    board = replace(read_keys(local.folder / "board.key").public, url=local.url("board"))
    now = int(time.time())
    parties: dict[str, Any] = {
        "url": "http://127.0.0.1:2",
        "shufflers": [replace(shuffler.public, url="http://127.0.0.1:1").shuffler(Anybody())],
        "board": board.notary,
    }
    raw = draft(settings, plan(name, minimum=1000), (now, now + 86_400, now + 90_000), **parties)
    signed = countersign(read_signed(raw), keys=shuffler.pairs, pledged={})
    url = f"{board.url}/rounds/{verify_signatures(signed).digest.hex()}"
    await peers.send(url, write_signed(signed), method="PUT")
    (local.folder / f"{url[-64:]}.terms").write_bytes(write_signed(signed))
    return url


async def _publish(
    local: Cluster, peers: HttpClient, url: str, keys: SecretKeys, size: int
) -> tuple[str, int]:
    """Deliver a bulletin; return the address of an entry, and the bulletin's size."""
    round_ = verify_signatures(read_signed((local.folder / f"{url[-64:]}.terms").read_bytes()))
    each = size // 2
    groups = [
        sorted(os.urandom(round_.entry_size(group)) for _ in range(each)) for group in range(2)
    ]
    tallies = [Tally(each), Tally(each)]
    bulletin = Bulletin.compose(groups, ANSWERED, round_.digest, tallies, roots=[bytes(32)])
    raw = bulletin.signed(keys.pairs.signing.sign).encode()
    headers = delivery_headers(raw, digest=round_.digest, signing=keys.pairs.signing)
    await peers.send(f"{url}/bulletin", raw, headers=headers)
    address = groups[1][each // 3][:16].hex()
    return f"{url}/entries/1/{address}", len(raw)


def _resident(pid: int, what: str = "VmRSS") -> float:
    """Return the memory of a process in megabytes."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.split(f"{what}:")[1].split()[0]) / 1e3


if __name__ == "__main__":
    sys.exit(main())
