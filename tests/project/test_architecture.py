"""The tree in docs/explanation/architecture.md names every module, and no module that is gone.

`python tests/project/test_architecture.py` mends the tree: it drops the lines of modules that are
gone and adds new modules with the first sentence of their docstring. Read what it wrote.
"""

import ast
import re
from pathlib import Path

from docs import state_diagrams

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "coatcheck"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
TREE = re.compile(r"(?<=```text\n)src/coatcheck/ .*?(?=\n```)", re.DOTALL)
INDENT, COLUMN = 2, 31


def modules(package: Path = PACKAGE) -> set[str]:
    """Return every module and every folder with modules; a folder stands for its `__init__.py`."""
    found = set()
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        found.add(name.removesuffix("__init__.py"))
    return found - {""}


def listed(page: str) -> dict[str, str]:
    """Return the description of each path in a page's tree, in order."""
    match = TREE.search(page)
    assert match is not None, "the page has no tree"
    folders, found = [""], {}
    for line in match[0].splitlines()[1:]:
        name, _, sentence = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // INDENT
        path = folders[depth - 1] + name
        assert path not in found, f"{path} is in the tree twice"
        found[path] = sentence.strip()
        if name.endswith("/"):
            folders[depth:] = [path]
    return found


def mended(page: str) -> str:
    """Return the page with a tree of the modules that exist."""
    known, existing = listed(page), modules()
    lines = [TREE.findall(page)[0].splitlines()[0]]

    def write(folder: str, depth: int) -> None:
        inside = [path for path in existing if Path(path).parent == Path(folder) and path != folder]
        order = list(known)
        for path in sorted(inside, key=lambda p: (order.index(p) if p in known else len(order), p)):
            start = " " * INDENT * depth + path.removeprefix(folder)
            lines.append(f"{start:<{COLUMN}}{known.get(path) or _first_sentence(path)}")
            if path.endswith("/"):
                write(path, depth + 1)

    write("", 1)
    return TREE.sub(lambda _: "\n".join(lines), page)


def _first_sentence(path: str) -> str:
    source = PACKAGE / path / "__init__.py" if path.endswith("/") else PACKAGE / path
    told = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return " ".join(told.split("\n\n")[0].split()).removesuffix(".")


def test_every_module_has_a_line() -> None:
    """A reader finds each module in the tree, with its purpose."""
    told = listed(PAGE.read_text(encoding="utf-8"))
    missing = sorted(path for path in modules() if not told.get(path))
    assert not missing, (
        f"no line for: {', '.join(missing)} (python {Path(__file__).name} adds them)"
    )


def test_no_line_names_a_module_that_is_gone() -> None:
    """Renamed and removed modules leave the tree."""
    gone = sorted(set(listed(PAGE.read_text(encoding="utf-8"))) - modules())
    assert not gone, f"in the tree, but not in the package: {', '.join(gone)}"


def test_the_page_names_only_files_that_exist() -> None:
    """The path of a report and the places to add something are real files."""
    page = TREE.sub("", PAGE.read_text(encoding="utf-8"))
    named = set(re.findall(r"`([\w/.-]+/[\w.-]*)`", page))
    gone = sorted(name for name in named if not any((at / name).exists() for at in (ROOT, PACKAGE)))
    assert len(named) > 20
    assert not gone, f"named in the text, but not there: {', '.join(gone)}"


def test_a_stale_tree_is_noticed_and_mended() -> None:
    """A missing line and an extra line are both found and corrected."""
    page = PAGE.read_text(encoding="utf-8")
    stale = page.replace("  errors.py ", "  mistakes.py ")
    assert set(modules()) ^ set(listed(stale)) == {"errors.py", "mistakes.py"}
    assert set(listed(mended(stale))) == modules()
    assert listed(mended(stale))["errors.py"]


def test_the_diagrams_are_drawn_from_the_tables() -> None:
    """A new transition appears in its diagram; `python docs/state_diagrams.py` draws it."""
    for name, text in state_diagrams.diagrams().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == text, name


if __name__ == "__main__":
    PAGE.write_text(mended(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
