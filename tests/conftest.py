"""Fixtures that several test files share."""

from collections.abc import Iterator

import pytest

from postgresql import Postgres


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL of the tests' own."""
    postgres = Postgres(tmp_path_factory.mktemp("postgres"))
    yield postgres
    postgres.end()
