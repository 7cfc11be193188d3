"""Published test vectors, which lie beside the repository."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[3] / "shared/data"
_FOLDER = Path(os.environ.get("COATCHECK_DATA", _BESIDE)).parent / "research/vectors"


def published(name: str) -> Any:
    """Read a file of published vectors; skip if it is missing, but fail on CI."""
    path = _FOLDER / name
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no published vectors at {path}")
