"""The table of contents is complete, typed, and quick to open."""

import ast
import subprocess
import sys
from pathlib import Path

import coatcheck

SOURCE = Path(coatcheck.__file__).read_text(encoding="utf-8")


def test_every_public_name_loads_from_its_module() -> None:
    """Each name of the table exists where the table says."""
    for name in coatcheck.__all__:
        assert getattr(coatcheck, name) is not None
    assert set(coatcheck.__all__) <= set(dir(coatcheck))


def test_type_checkers_and_the_interpreter_see_one_table() -> None:
    """The names imported for type checkers are those loaded lazily, from the same modules."""
    imported = {
        alias.name: (node.module or "").removeprefix("coatcheck.")
        for node in ast.walk(ast.parse(SOURCE))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coatcheck.")
        for alias in node.names
    }
    assert imported == coatcheck._CONTENTS
    assert sorted([*imported, "__version__"]) == sorted(coatcheck.__all__)


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
