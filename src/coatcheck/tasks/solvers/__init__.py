"""Whether loops can be compiled: numba is an optional extra, and everything has a way without it.

The kernels live in files of their own (`*_kernels.py`) that only functions import, after asking
here; `import coatcheck` never loads numba. This file knows no data.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar, cast

from coatcheck.errors import Misuse

F = TypeVar("F", bound=Callable[..., Any])


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def needed(what: str) -> Misuse:
    """The error that says that this size needs the extra."""
    return Misuse(f"{what}; compiled loops do it: pip install 'coatcheck[fast]'")


def jit(function: F) -> F:
    """Compile at the first call, keep the machine code on disk if there is a place for it."""
    from numba import njit  # noqa: PLC0415 - an extra, and half a second to import

    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no directory can be written to: compile in every process instead
        compiled = njit(nogil=True)(function)
    return cast("F", compiled)
