"""Plans that a command shows in several forms, computed once per test."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest


def remember(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let `coatcheck plan` cache the results of these functions within one test."""
    shown = import_module("coatcheck.cli.plan")
    for name in names:
        monkeypatch.setattr(shown, name, _remembered(getattr(shown, name)))


def _remembered(compute: Callable[..., Any]) -> Callable[..., Any]:
    found: dict[str, Any] = {}

    def again(*given: Any, **named: Any) -> Any:
        asked = repr((given, named))
        if asked not in found:
            found[asked] = compute(*given, **named)
        return found[asked]

    return again
