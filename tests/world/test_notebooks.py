"""The notebooks of the manual run from top to bottom, and are kept without their outputs."""

import json
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/tutorial").glob("*.ipynb"))
PATIENCE = 600


def test_there_are_some() -> None:
    """The manual has notebooks, and lists each."""
    index = (NOTEBOOKS[0].parents[1] / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 3
    assert all(f"tutorial/{path.stem}\n" in index for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_outputs(path: Path) -> None:
    """What it shows is made when the manual is built: `make docs`."""
    book = json.loads(path.read_bytes())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert book["cells"][0]["cell_type"] == "markdown"
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    """Every cell runs, and every one shows something."""
    book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(book, timeout=PATIENCE, startup_timeout=PATIENCE).execute()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code)
    assert "text/html" in str(code[0].outputs) or path.stem == "count-privacy"
