"""Digests of the code that measures the rows of a sheet.

A digest covers the module of a sheet and everything that it imports, directly or not, as read from
the files. Imports inside functions count; imports for type checkers only do not. So a change of the
services makes no row about locations stale. `coatcheck/__init__.py` is a table of names: a module
imported through it counts, the table does not. A plan can also draft terms, but no figure of a plan
comes from that, so planning's imports of the protocol do not count.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import coatcheck

_ROOTS: Final = {
    "coatcheck": Path(coatcheck.__file__).parent,
    "study": Path(__file__).parent,
}
# These store rows; they do not measure them.
_KEEPING: Final = ("coatcheck", "study", "study.sheets", "study.digests")


@cache
def digest(module: str) -> str:
    """Return a digest of the code that a module of the study runs."""
    whole = hashlib.sha256()
    for name in modules(module):
        path = _file(name)
        if path is not None:
            whole.update(path.read_bytes())
    return "x" + whole.hexdigest()[:8]  # so that no CSV reader takes it for a number


def modules(start: str) -> list[str]:
    """Return a module and everything of coatcheck and the study that it imports, sorted."""
    names, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in names or name in _KEEPING or path is None:
            continue
        names.add(name)
        todo += [name.rpartition(".")[0]]
        todo += [one for one in _imported(path) if not _drafts(name, one)]
    return sorted(names)


def _drafts(name: str, imported: str) -> bool:
    planning, protocol = ("coatcheck.planning", "coatcheck.protocol")
    return name.startswith(planning) and imported.startswith(protocol)


def _file(name: str) -> Path | None:
    top, *rest = name.split(".")
    if top not in _ROOTS:
        return None
    path = _ROOTS[top].joinpath(*rest)
    for one in (path.with_suffix(".py"), path / "__init__.py"):
        if one.is_file():
            return one
    return None


@cache
def _imported(path: Path) -> list[str]:
    """Return the names that a file imports, modules and others; others have no file."""
    names = []
    for node in _run(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "coatcheck":
            table = vars(coatcheck)["_MODULES"]  # the names that the package offers
            names += [f"coatcheck.{table.get(a.name, a.name)}" for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file that run: all but those for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from (part for rest in child.orelse for part in _run(rest))
            continue
        yield child
        yield from _run(child)
