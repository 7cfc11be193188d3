"""Exact optimizers, and whether numba, an optional extra, can compile their loops.

Compiled loops are in separate files (`*_kernels.py`), which functions import after `available`
says yes; `import coatcheck` never loads numba.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from coatcheck.errors import Misuse

F = TypeVar("F", bound=Callable[..., Any])


@cache
def available() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


def needed(problem: str) -> Misuse:
    """Return the error for a size that needs the extra."""
    return Misuse(f"{problem}; install the compiled loops: pip install 'coatcheck[fast]'")


def jit(function: F) -> F:
    """Compile a function at its first call; cache the machine code if a folder is writable."""
    from numba import njit  # noqa: PLC0415 - an extra, and half a second to import

    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no directory can be written to: compile in every process instead
        compiled = njit(nogil=True)(function)
    return cast("F", compiled)
