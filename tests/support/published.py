"""Published vectors, which lie beside the repository and are used in place."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

_BESIDE = Path(__file__).parents[3] / "shared/data"
_FOLDER = Path(os.environ.get("COATCHECK_DATA", _BESIDE)).parent / "research/vectors"


def published(name: str) -> Any:
    """Read a file of them; without it skip, unless CI says that it must be there."""
    path = _FOLDER / name
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no published vectors at {path}")
