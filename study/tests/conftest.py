"""The data sets of the study's tests: the real ones, or small made-up ones."""

import os

import pytest

# Before numpy is loaded, which reads this once: each worker has a core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from study import datasets
from support.made_data import made


@pytest.fixture
def data_sets(monkeypatch: pytest.MonkeyPatch) -> bool:
    """The real data sets where they are (True); elsewhere small made-up ones of the same shape."""
    real = datasets.is_there()
    if not real:
        monkeypatch.setattr(datasets, "load", made)
    return real
