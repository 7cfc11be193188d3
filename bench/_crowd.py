"""A full round over HTTP for `bench services`: real processes, real tickets, step by step."""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import httpx2
import numpy as np

from bench import Figure
from coatcheck import tasks
from coatcheck.domains import Box
from coatcheck.entropy import system
from coatcheck.protocol import client
from coatcheck.protocol.agreement import Trust, verify_signatures
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.ticket import Ticket
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.services.documents import Offer
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient

_CLIENTS = 32


def round_of(folder: Path, *, people: int) -> list[Figure]:
    """Run a round with a number of people and return where the time goes."""
    from bench.services import plan  # noqa: PLC0415 - each needs the other

    each = people // 2
    # The tickets take more than a minute on two cores, so the crowd decides when the round closes.
    with Cluster(folder / "round") as local:
        url = local.open_round(plan("crowd", minimum=each), closes=1, expires=86_000)
        offer = asyncio.run(_offer(url, local))
        steps: dict[str, float] = {}
        begun = time.perf_counter()
        tickets = _tickets(offer, local.trusted, each)
        steps["seal the reports (people)"] = time.perf_counter() - begun
        begun = time.perf_counter()
        asyncio.run(_send(url, [ticket.upload for ticket in tickets]))
        steps["upload"] = time.perf_counter() - begun
        raw, waited = _wait(url, local)
        steps |= waited
        begun = time.perf_counter()
        round_ = verify_signatures(offer.signed)
        bulletin = verify_bulletin(raw, round_)
        answers = [client.collect(ticket, bulletin) for ticket in tickets[::20]]
        steps["check, and open every 20th answer (people)"] = time.perf_counter() - begun
        assert all(len(answer.partners) == 1 for answer in answers)  # noqa: S101 - a bench checks
    steps["  of it matching alone"] = _matching(each)
    return _figures(people, steps)


def _figures(people: int, steps: dict[str, float]) -> list[Figure]:
    figures = [Figure(what=name, value=value, unit="s") for name, value in steps.items()]
    cores = os.cpu_count() or 1
    ours = steps["close, peel, shuffle, deliver"] + steps["open, match, seal, publish"]
    draw, seal_one, open_one, sign = _curves()
    # A person draws keys and seals twice and gets a signature; a shuffler opens; a server opens
    # and seals. One process signs the receipts; all cores share the rest.
    services = people * (2 * open_one + seal_one) / cores
    whole = services + people * ((draw + 2 * seal_one) / cores + sign)
    total = sum(value for name, value in steps.items() if not name.startswith(" "))
    return [
        *figures,
        Figure(what=f"a round of {people:,} people", value=total, unit="s"),
        Figure(what="  of it in elliptic curves", value=100 * whole / total, unit="%"),
        Figure(what="  shuffler and server after the close", value=ours, unit="s"),
        Figure(what="  of that in elliptic curves", value=100 * services / ours, unit="%"),
    ]


async def _offer(url: str, local: Cluster) -> Offer:
    async with Session(url, path=local.folder / "none", trusted=local.trusted) as session:
        return await session.offer()


def _tickets(offer: Offer, trusted: Trust, each: int) -> list[Ticket]:
    """Randomize and seal for everybody, on all cores."""
    context = multiprocessing.get_context("spawn")
    share = -(-each // 8)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        jobs = [
            pool.submit(_some, offer, trusted, group, min(share, each - at))
            for group in ("riders", "drivers")
            for at in range(0, each, share)
        ]
        return [ticket for job in jobs for ticket in job.result()]


def _some(offer: Offer, trusted: Trust, group: str, count: int) -> list[Ticket]:
    limit = Limit(epsilon=10.0, delta=1e-3)
    invitation = examine(
        offer.signed, group=group, trusted=trusted, limit=limit, now=int(time.time())
    )
    places = np.random.default_rng().random((count, 2))
    return [invitation.join(tuple(place), ledger=None) for place in places.tolist()]


async def _send(url: str, uploads: list[bytes]) -> None:
    headers = {"content-type": "application/octet-stream"}
    waiting = list(uploads)

    async def one(peers: HttpClient) -> None:
        while waiting:
            await peers.send(f"{url}/uploads", waiting.pop(), headers=headers)

    async with HttpClient() as peers:
        await asyncio.gather(*(one(peers) for _ in range(_CLIENTS)))


def _wait(url: str, local: Cluster) -> tuple[bytes, dict[str, float]]:
    """Wait for each step, as its service reports it."""
    digest = url.rpartition("/")[2]
    begun = time.perf_counter()

    def until(ask: Callable[[], bool]) -> float:
        while not ask():
            time.sleep(0.1)
        return time.perf_counter() - begun

    shuffled = until(lambda: httpx2.get(url).json()["status"]["phase"] == "delivered")
    board = f"{local.url('board')}/rounds/{digest}"
    shown = until(lambda: httpx2.get(board).json()["shown"])
    steps = {
        "close, peel, shuffle, deliver": shuffled,
        "open, match, seal, publish": shown - shuffled,
    }
    return httpx2.get(f"{board}/bulletin", timeout=60).content, steps


def _matching(each: int) -> float:
    """Measure the task alone, on as many reports."""
    square = MinkowskiResponse(domain=Box(lo=(0.0, 0.0), hi=(1.0, 1.0)), epsilon=2.0, radius=0.5)
    places = np.random.default_rng(1).random((2, each, 2))
    read = [square.estimate(square.randomize(group, system())) for group in places]
    task = tasks.from_params({"name": "least-cost-matching"})
    begun = time.perf_counter()
    task(read)
    return time.perf_counter() - begun


def _curves() -> tuple[float, float, float, float]:
    """Measure drawing keys, sealing, opening and signing, in seconds of CPU."""
    keys = KeyPairs(CLASSICAL, bytes(32))
    bound = binding(Purpose.REPORT, digest=bytes(32), group=0)
    sealed = seal(bytes(128), to=keys.opening.public, bound=bound)
    jobs: list[Callable[[], object]] = [
        lambda: KeyPairs(CLASSICAL, bytes(32)),
        lambda: seal(bytes(128), to=keys.opening.public, bound=bound),
        lambda: unseal(sealed, key=keys.opening, bound=bound),
        lambda: keys.signing.sign(bytes(100)),
    ]
    draw, seal_one, open_one, sign = (_cpu(job) for job in jobs)
    return draw, seal_one, open_one, sign


def _cpu(job: Callable[[], object], count: int = 2000) -> float:
    begun = time.process_time()
    for _ in range(count):
        job()
    return (time.process_time() - begun) / count
