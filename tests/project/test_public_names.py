"""The public names: complete, typed, quick to load, and the only ones other folders import.

`python tests/project/test_public_names.py` writes docs/reference/private-names.txt anew.
"""

import ast
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import coatcheck

NAMES: list[str] = vars(coatcheck)["__all__"]
STUB = Path(coatcheck.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference/api.md"
PRIVATE = ROOT / "docs/reference/private-names.txt"
WHOLE = ("coatcheck.errors", "coatcheck.entropy", "coatcheck.testing")
PROGRAMS = ("cli", "demo", "services", "stores")
HEAD = """# Private names that each folder imports: study and bench measure the inside, some pages
# check what they say. A test compares this list with the imports; after a change, write it anew:
# python tests/project/test_public_names.py
"""


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import from the package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coatcheck":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            parts = (alias.name.rpartition(".") for alias in node.names)
            yield from ((module, name) for module, _, name in parts if "coatcheck" in module)


def codes(folder: str, *, pages: bool = False) -> Iterator[str]:
    """Yield the code of a folder: its pages and notebooks, and with `pages` off its files."""
    front = [ROOT / "README.md"] if folder == "docs" else []
    for path in [*front, *(ROOT / folder).rglob("*")]:
        if path.parent.name == "tests":  # a test may look inside
            continue
        if path.suffix == ".py" and not pages:
            yield path.read_text(encoding="utf-8")
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            yield from re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        elif path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
            yield from (re.sub(r"^%.*$", "", cell, flags=re.MULTILINE) for cell in code)


def beyond(folder: str, *, pages: bool = False) -> set[tuple[str, str]]:
    """Return a folder's imports outside the table of contents and the fully public modules."""
    modules: dict[str, str] = vars(coatcheck)["_MODULES"]
    public = {(f"coatcheck.{module}", name) for name, module in modules.items()}
    public |= {("coatcheck", name) for name in NAMES}
    public |= {("coatcheck", module.rpartition(".")[2]) for module in WHOLE}
    names = {pair for code in codes(folder, pages=pages) for pair in imported(code)}
    return {(module, name) for module, name in names - public if module not in WHOLE}


def further() -> set[tuple[str, str]]:
    """Return the further public names: the table of the reference."""
    text = REFERENCE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(coatcheck\.[\w.]+)` \| (.*?) \|", text, re.MULTILINE)
    return {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}


def inside() -> str:
    """Return the list of private names for docs/reference/private-names.txt."""
    lines = []
    for folder in ("docs", "examples", "study", "bench"):
        modules: dict[str, list[str]] = {}
        for module, name in sorted(beyond(folder) - further()):
            modules.setdefault(module, []).append(name)
        lines += [
            f"\n[{folder}]",
            *(f"{module}: {' '.join(modules[module])}" for module in modules),
        ]
    return HEAD + "\n".join(lines) + "\n"


def test_every_public_name_loads_from_its_module() -> None:
    """Each name of the table exists where the table says."""
    for name in NAMES:
        assert getattr(coatcheck, name) is not None
    assert set(NAMES) <= set(dir(coatcheck))


def test_type_checkers_and_the_interpreter_see_one_table() -> None:
    """The names of the stub are those loaded lazily, from the same modules."""
    imported = {
        alias.name: (node.module or "").removeprefix("coatcheck.")
        for node in ast.walk(ast.parse(STUB))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == vars(coatcheck)["_MODULES"]
    assert sorted([*imported, "__version__"]) == sorted(NAMES)


def test_the_reference_lists_every_further_name_that_its_pages_use() -> None:
    """Each name of the table can be imported, and a page shows it; programs are no library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own
        for module, name in further():
            assert hasattr(import_module(module), name), f"{module}.{name}"
    unlisted = {
        (module, name)
        for module, name in beyond("docs", pages=True) - further()
        if f"{module}.{name}".split(".")[1] not in PROGRAMS
    }
    assert not unlisted, "add them to the table of docs/reference/api.md, or do without them"
    pages = [path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".ipynb"}]
    shown = "".join(path.read_text(encoding="utf-8") for path in pages if path != REFERENCE)
    for module, name in further():
        assert re.search(rf"\b{name}\b", shown), f"no page shows {module}.{name}"


def test_other_folders_import_public_names_or_those_of_one_list() -> None:
    """Renames inside the package show which folders must follow."""
    hint = "write the list anew: python tests/project/test_public_names.py"
    assert PRIVATE.read_text(encoding="utf-8") == inside(), hint


def test_the_list_is_short_and_its_names_are_specific() -> None:
    """About thirty names; ambiguous verbs stay in their modules."""
    assert len(NAMES) <= 34
    assert not {"read", "write", "view", "system"} & set(NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A misspelt name fails as in any module."""
    assert not hasattr(coatcheck, "coat_check")


def test_importing_the_library_loads_nothing_heavy() -> None:
    """`import coatcheck` and the randomizers leave plotting, statistics and terminals alone."""
    code = (
        "import sys, coatcheck; coatcheck.choose; "
        "heavy = {'scipy.stats', 'matplotlib', 'numba', 'rich', 'dp_accounting', 'click'}; "
        "sys.exit(' '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    PRIVATE.write_text(inside(), encoding="utf-8")
