"""The pages on tasks run as they are printed."""

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "least"), [("how-to/own-task.md", 5), ("reference/tasks.md", 1)])
def test_every_block_of_a_page_runs(page: str, least: int) -> None:
    """The Python blocks, one after another, raise nothing; their assertions hold."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= least
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}, block {number}", "exec"), names)  # noqa: S102 - our own pages
