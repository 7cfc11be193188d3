"""Storms over four deployments: `python tests/soak.py`, or `make soak MINUTES=30` for so long.

SQLite and PostgreSQL, each with one shuffler and with a cascade. In every storm processes are
killed at steps of the round, databases crash, strangers send junk and clocks step. Everybody must
be answered exactly once, under a signed end. Prints one line of counts for each storm.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from support.postgresql import Postgres, installed
from support.storm import Storm

DEPLOYMENTS = (("sqlite", 1), ("postgresql", 1), ("sqlite", 3), ("postgresql", 2))


@contextmanager
def database(kind: str) -> Iterator[Postgres | None]:
    """Run a PostgreSQL, if one is asked for."""
    if kind == "sqlite":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="coatcheck-pg-") as folder:
        postgres = Postgres(Path(folder))
        try:
            yield postgres
        finally:
            postgres.end()


def storm(kind: str, shufflers: int, asked: argparse.Namespace, seed: int) -> bool:
    """Run one storm and print its counts; whether everything was well."""
    begun = time.monotonic()
    with database(kind) as postgres, tempfile.TemporaryDirectory(prefix="coatcheck-soak-") as name:
        one = Storm(
            Path(name), shufflers=shufflers, postgres=postgres, people=asked.people, seed=seed
        )
        run = one.run(kills=asked.kills, crashes=asked.crashes, junk=asked.junk)
        count = asyncio.run(run)
    told = {**asdict(count), "seconds": round(time.monotonic() - begun)}
    print(json.dumps(told), flush=True)  # noqa: T201 - the result
    return count.is_good


def main() -> int:
    """Run storms over every deployment, once or for so many minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=600)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--crashes", type=int, default=2)
    parser.add_argument("--junk", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0.0)
    asked = parser.parse_args()
    end, seed, good = time.monotonic() + 60 * asked.minutes, 0, True
    while not seed or time.monotonic() < end:
        for kind, shufflers in DEPLOYMENTS:
            if kind == "postgresql" and installed() is None:
                print("soak: PostgreSQL is not installed and was left out")  # noqa: T201
                continue
            good &= storm(kind, shufflers, asked, seed)
        seed += 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
