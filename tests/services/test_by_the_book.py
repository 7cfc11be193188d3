"""A whole round by a client that was written from SPEC alone."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coatcheck.services.local_cluster import Cluster
from support.book_client import Person, Refused
from support.book_relay import Relay
from support.service_rounds import GROUPS, QUICK, RANDOMIZER, SPARE

pytestmark = pytest.mark.service
MINIMUM = 6
PEOPLE = MINIMUM + SPARE + 1  # no fewer may close the round, so nobody comes too late


def test_people_with_another_client_take_part_in_a_cascade_with_decoys(tmp_path: Path) -> None:
    """They examine, find the terms logged, pass two shufflers, and are matched with each other.

    The people of one group send everything through a relay.
    """
    group = {"randomizer": RANDOMIZER, "minimum": MINIMUM, "delta": 1e-3}
    draft = {
        "round": "by the book",
        "task": {"name": "least-cost-matching"},
        "groups": [{"name": name, "corrupted": 1, "decoys": 1, **group} for name in GROUPS],
        "trap_delta": 9.9e-4,
    }
    with Cluster(tmp_path, shufflers=2, relay=True, extra=QUICK) as local:
        url = local.open_round(draft, closes=1, expires=3600)
        trusted = local.trusted.plain()
        keys = {
            "server": trusted["server"],
            "board": trusted["board"],
            "shufflers": [key for party in trusted["shufflers"] for key in party],
        }
        crowd = [
            (Person(url, name, keys, limit=10.0, relay=relay), local.take_tokens().split(","))
            for name, relay in zip(GROUPS, (Relay(local.url("relay"), keys), None), strict=True)
            for _ in range(PEOPLE)
        ]
        with pytest.raises(Refused, match=r"S12\.11"):
            Person(url, GROUPS[0], keys, limit=0.01).examine()

        def take_part(person: Person, tokens: list[str]) -> None:
            person.examine()
            person.check_logged()
            person.join([0.25, 0.5], tokens)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda one: take_part(*one), crowd))
        reports = {keys.contact: person.number for person, _ in crowd for keys in person.keys}
        partners = {person.keys[0].contact: person.collect() for person, _ in crowd}
        for contact, shown in partners.items():
            assert [number for number, _ in shown] == [1 - reports[contact]]
            assert reports[shown[0][1]] == shown[0][0]
            if shown[0][1] in partners:  # not the partner's decoy, whose answer nobody reads
                assert [other for _, other in partners[shown[0][1]]] == [contact]
