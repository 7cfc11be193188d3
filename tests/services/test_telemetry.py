"""Logs never describe a single report, even after an unforeseen error."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from coatcheck.services.telemetry import Metrics
from coatcheck.services.web.app import Service


def test_an_unforeseen_error_is_logged_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A database that quotes an upload in its error does not put it into the log."""

    async def step() -> None:
        raise KeyError("Key (id)=(5f3a9c) already exists")

    part = SimpleNamespace(metrics=Metrics("server"))
    with caplog.at_level(logging.DEBUG):
        assert not asyncio.run(Service.attempt(part, "look", step))  # type: ignore[arg-type]
    assert "5f3a9c" not in caplog.text
    assert f"KeyError at {Path(__file__).name}:" in caplog.text
