"""The how-to on writing a task runs as it is printed."""

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "own-task.md"


def test_every_block_of_the_page_runs() -> None:
    """The Python blocks, one after another, raise nothing; their assertions hold."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, Any] = {"__name__": "own_task"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)  # noqa: S102 - our own page
    assert names["verdict"].equivariant
