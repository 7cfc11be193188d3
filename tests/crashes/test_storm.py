"""Small storms: kills at steps, a database crash, junk, clock steps; `make soak` has large ones."""

import asyncio
from pathlib import Path

import pytest

from support.postgresql import Postgres
from support.storm import Storm

pytestmark = pytest.mark.service


def test_a_cascade_survives_a_storm(database: Postgres | None, tmp_path: Path) -> None:
    """No person is lost, doubled or stuck, and the round has a valid signed outcome."""
    shufflers = 2 if database else 3
    storm = Storm(tmp_path, shufflers=shufflers, postgres=database, people=24, seed=1)
    count = asyncio.run(storm.run(kills=6, crashes=1, junk=8))
    assert count.is_good, count
    assert (count.database_crashes, count.junk) == (1, 8)
    assert count.kills >= 6
    assert count.junk_taken >= 2
