"""`coatcheck demo taxi --page` as a process: says where the page is, leaves nothing behind."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from click.testing import CliRunner

from coatcheck.accounting.amplification import amplify
from coatcheck.cli import main
from coatcheck.demo.scenarios import make_scenario, with_places


def test_the_command_serves_the_page_until_it_is_interrupted(tmp_path: Path) -> None:
    """It prints a loopback address that answers; Ctrl-C ends it and its folder is gone."""
    command = [sys.executable, "-m", "coatcheck", "demo", "taxi", "--page", "--people", "20"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=3000) as answer:  # noqa: S310 - loopback
                assert b"both sides" in answer.read()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=300)
    assert list(tmp_path.iterdir()) == []


def test_only_places_fit_on_a_map() -> None:
    """The learning demo has no places, and the sentence says so."""
    result = CliRunner().invoke(main, ["demo", "learning", "--page", "--people", "20"])
    assert result.exit_code == 2
    assert "the learning demo has none" in result.output


def test_places_instead_of_cells_keep_the_promise() -> None:
    """The page's mechanism gives the scenario's crowd no larger ε than was asked for."""
    scenario = make_scenario("taxi", people=60, epsilon=1.5)
    for draft in with_places(scenario).drafts:
        guarantee = amplify(draft.randomizer.law, crowd=draft.minimum, delta=draft.delta)
        assert draft.randomizer.name == "bounded"
        assert guarantee.epsilon <= scenario.epsilon
