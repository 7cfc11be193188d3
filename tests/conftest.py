"""Fixtures that several test files share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgresql import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own."""
    # Not in pytest's folder, which every other session of pytest closes to the user postgres.
    with tempfile.TemporaryDirectory(prefix="coatcheck-pg-", ignore_cleanup_errors=True) as folder:
        made = Postgres(Path(folder))
        try:
            yield made
        finally:
            made.end()
