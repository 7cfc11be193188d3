"""Published test vectors, which lie beside the repository."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[3] / "shared/data"
_FOLDER = Path(os.environ.get("COATCHECK_DATA", _BESIDE)).parent / "research/vectors"


def published(name: str) -> Any:
    """Read a file of published vectors; skip the test if it is missing."""
    path = _FOLDER / name
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return pytest.skip(f"no published vectors at {path}")
