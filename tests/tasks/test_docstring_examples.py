"""The examples in the docstrings of the tasks are true."""

import doctest
from importlib import import_module

import pytest

MODULES = ("", ".equivariance", ".matching", ".neighbours", ".solvers.close_pairs")


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_printed(name: str) -> None:
    """Each module has examples, and none fails."""
    found = doctest.testmod(import_module(f"coatcheck.tasks{name}"))
    assert found.attempted > 0
    assert found.failed == 0
