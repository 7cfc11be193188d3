"""The page on rounds runs as it is printed."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-round.md"


def test_every_block_of_the_page_runs() -> None:
    """The Python blocks, one after another, raise nothing; their assertions hold."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)  # noqa: S102 - our own page
