"""A round with decoys, as its roles type it over files."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from coatcheck.cli import main

DRAFT = {
    "round": "hiding",
    "task": {"name": "neighbours", "radius": 2.0, "limit": 3},
    "groups": [
        {
            "name": "people",
            "minimum": 4,
            "delta": 1e-2,
            "decoys": 2,
            "randomizer": {
                "name": "grid",
                "epsilon": 4.0,
                "cells": [2, 2],
                "domain": {"kind": "box", "lo": [0, 0], "hi": [1, 1], "steps": 64},
            },
        }
    ],
}


def run(*command: object) -> str:
    """Run a command and return what it prints."""
    done = CliRunner().invoke(main, list(map(str, command)), catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def read(*command: object) -> Any:
    """Run a command in JSON and return what it prints."""
    return json.loads(run(*command, "--json"))


def test_a_round_with_decoys_over_files(tmp_path: Path) -> None:
    """From keys to answers: four people hand in twelve reports, and everybody reads one answer."""
    file = {name: tmp_path / name for name in ("draft", "proposed", "terms", "batch", "bulletin")}
    trust = []
    for name in ("server", "shuffler", "board"):
        key = tmp_path / f"{name}.key"
        public = run("keygen", name, "--url", f"https://{name}.example", "--out", key)
        (tmp_path / f"{name}.pub").write_text(public)
        trust += ["--trust", f"{name}={tmp_path / name}.pub"]
    file["draft"].write_text(json.dumps(DRAFT))
    parties = ("--shuffler", tmp_path / "shuffler.pub", "--board", tmp_path / "board.pub")
    times = ("--opens", "-1h", "--closes", "-1m", "--expires", "+1h")
    keys = {role: ("--key", tmp_path / f"{role}.key") for role in ("server", "shuffler")}
    propose = ("terms", "propose", file["draft"], *keys["server"], *parties, *times)
    run(*propose, "--out", file["proposed"])
    sign = ("terms", "sign", file["proposed"], *keys["shuffler"])
    run(*sign, "--pledges", tmp_path / "pledges", "--out", file["terms"])
    terms = read("terms", "check", file["terms"], *trust)
    assert terms["groups"]["people"]["decoys"] == 2
    uploads = []
    for name in ("ada", "ben", "cyd", "dan"):
        ticket, ledger = tmp_path / f"{name}.ticket", tmp_path / f"{name}.ledger"
        run("ledger", "begin", ledger, "--epsilon", 9, "--delta", 0.1)
        uploads.append(tmp_path / f"{name}.upload")
        person = ("--group", "people", "--value", "0.2,0.2", "--epsilon", 9, "--delta", 0.1)
        files = ("--ledger", ledger, "--ticket", ticket, "--out", uploads[-1])
        run("join", "--terms", file["terms"], *trust, *person, *files)
        assert uploads[-1].stat().st_size == terms["groups"]["people"]["upload_size"]
    of_round = ("--terms", file["terms"])
    receipts = tmp_path / "receipts"
    shuffle = ("shuffle", *uploads, *of_round, *keys["shuffler"], "--receipts", receipts)
    run(*shuffle, "--out", file["batch"])
    run("answer", file["batch"], *of_round, *keys["server"], "--out", file["bulletin"])
    for name in ("ada", "ben", "cyd", "dan"):
        mine = ("--ticket", tmp_path / f"{name}.ticket", "--bulletin", file["bulletin"])
        answer = read("collect", *of_round, *mine)
        assert len(answer["partners"]) == 3
