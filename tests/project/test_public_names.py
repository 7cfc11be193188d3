"""The table of contents is complete, typed, and quick to open."""

import ast
import subprocess
import sys
from pathlib import Path

import coatcheck

NAMES: list[str] = vars(coatcheck)["__all__"]
STUB = Path(coatcheck.__file__).with_suffix(".pyi").read_text(encoding="utf-8")


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


def test_the_list_is_short_and_its_names_tell_what_they_are() -> None:
    """About thirty names; verbs that could mean anything stay in their modules."""
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
