"""People in browsers and people with the Python client settle with each other, on real services."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.ticket import read_ticket
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.person.letters import settle
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import HttpClient
from support.service_rounds import LIMIT, PATIENCE, QUICK, draft
from world.web.browser import HERE, needed

Places = dict[str, tuple[tuple[float, float], ...]]

PLACES: Places = {
    "riders": ((0.1, 0.2), (0.8, 0.7), (0.4, 0.9), (0.6, 0.1)),
    "drivers": ((0.2, 0.2),),
}
HERE_TOO: Places = {"drivers": ((0.7, 0.7), (0.3, 0.8), (0.5, 0.2))}
"""The places of the people in browsers: of two pairs at least one is mixed."""
LONG = 900.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Running services."""
    with Cluster(tmp_path_factory.mktemp("settling"), extra=QUICK) as local:
        yield local


def settler(url: str, local: Cluster, name: str, *, crash: Any = None, **person: Any) -> Any:
    """Run one person's browser once; return None if it crashed."""
    path = local.folder / f"{url[-8:]}-{name}.ticket"
    request = {"url": url, "trusted": local.trusted.plain(), "ticket": str(path), "words": name}
    done = subprocess.run(  # noqa: S603 - our own script
        [needed("node"), "--no-warnings", str(HERE / "settler.mjs")],
        input=json.dumps({**request, **person, "crash": crash}),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )
    assert done.returncode in ((9, 0) if crash else (0,)), done.stderr
    return None if crash else {**json.loads(done.stdout), "ticket": str(path)}


def crashing(url: str, local: Cluster, name: str, **person: Any) -> Any:
    """Run a browser that crashes at its first steps, before or after it sends a letter."""
    for when in ("before", "after", "before", "after"):  # a test of nearness is over by then
        settler(url, local, name, crash={"after": 1, "when": when}, **person)
    return settler(url, local, name, **person)


async def python_person(
    url: str, local: Cluster, name: str, *, peers: HttpClient, group: str, value: Any
) -> Any:
    """Take part as one person with the Python client."""
    path = local.folder / f"{url[-8:]}-{name}.ticket"
    session = Session(url, path=path, trusted=local.trusted, peers=peers)
    await session.join(value, group=group, limit=LIMIT, ledger=None)
    side = await settle(session, value, words=name, patience=PATIENCE, look=0.2)
    return {
        "address": side.machine.address.hex(),
        "partners": [partner.hex() for partner in side.machine.partners],
        "words": [text.decode() for text in side.words.values()],
        "ticket": str(path),
    }


async def everybody(url: str, local: Cluster, python: Places, browser: Places) -> list[Any]:
    """Let everybody settle: people with the Python client and in browsers, one of which crashes."""
    async with HttpClient() as peers:
        people = [
            python_person(
                url, local, f"python {group} {n}", peers=peers, group=group, value=list(value)
            )
            for group, places in python.items()
            for n, value in enumerate(places)
        ]
        runs = (crashing, settler, settler)
        browsers = [
            (group, n, value) for group, places in browser.items() for n, value in enumerate(places)
        ]
        people += [
            asyncio.to_thread(
                run, url, local, f"browser {group} {n}", group=group, value=list(value)
            )
            for run, (group, n, value) in zip(runs, browsers, strict=True)
        ]
        return list(await asyncio.gather(*people))


def names(people: list[Any]) -> dict[str, str]:
    """Return everybody's name by their address."""
    return {person["address"]: Path(person["ticket"]).stem.partition("-")[2] for person in people}


def check(people: list[Any]) -> int:
    """Check that partners name each other and have each other's words; count the mixed pairs."""
    by_address = {person["address"]: person for person in people}
    called, mixed = names(people), 0
    for person in people:
        assert sorted(person["words"]) == sorted(called[other] for other in person["partners"])
        for other in person["partners"]:
            assert person["address"] in by_address[other]["partners"]
            mixed += called[other][0] != called[person["address"]][0]
        # Each client reads the ticket that the other one wrote.
        assert read_ticket(Path(person["ticket"]).read_bytes()).settling is not None
    return mixed


def test_browsers_and_python_people_settle_with_each_other(local: Cluster) -> None:
    """Riders and drivers of both clients pair up, and a browser that crashed resumes.

    Everybody's decoy settles too, with nobody.
    """
    plain = draft("both clients", minimum=4, decoys=1)
    plain["task"]["candidates"] = 4
    rings = [0.3, 0.6, 0.9, 1.2]
    plain["settle"] = {"cell": 0.25, "rings": rings, "asks": [2, 1], "pause": 600, "spread": 0.3}
    url = local.open_round(plain, closes=1, expires=7200)
    people = asyncio.run(everybody(url, local, PLACES, HERE_TOO))
    assert all(len(person["partners"]) <= 1 for person in people)
    assert sum(len(person["partners"]) for person in people) >= 4
    assert check(people) >= 2
    crashed = next(person for person in people if "browser drivers 0" in person["ticket"])
    again = settler(url, local, "browser drivers 0", group="drivers", value=[0.7, 0.7])
    assert again["partners"] == crashed["partners"]


def test_browsers_and_python_people_find_out_who_is_near(local: Cluster) -> None:
    """Both clients find the same near pairs, by blinded cells, and nobody who is far."""
    python: Places = {"members": ((0.1, 0.1), (0.15, 0.1), (0.9, 0.9), (0.1, 0.9))}
    browser: Places = {"members": ((0.1, 0.15), (0.85, 0.9), (0.5, 0.5))}
    randomizer = {**draft("any")["groups"][0]["randomizer"], "epsilon": 9.0, "radius": 0.1}
    group = {"name": "members", "randomizer": randomizer, "minimum": 7, "delta": 1e-3}
    url = local.open_round(
        {
            "round": "near",
            "task": {"name": "neighbours", "radius": 0.3, "limit": 6, "mutual": True},
            "groups": [group],
            "settle": {"asks": [], "pause": 600},
        },
        closes=1,
        expires=7200,
    )
    people = asyncio.run(everybody(url, local, python, browser))
    assert check(people) >= 2
    where = {
        f"{kind} members {n}": place
        for kind, places in (("python", python), ("browser", browser))
        for n, place in enumerate(places["members"])
    }
    called = names(people)
    for person in people:
        here = where[called[person["address"]]]
        for other in person["partners"]:
            there = where[called[other]]
            assert (here[0] - there[0]) ** 2 + (here[1] - there[1]) ** 2 < 0.3**2
