"""Private task parameters: read from the server's own file, never from the terms."""

import json
from pathlib import Path

import numpy as np
import pytest

from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.drafting import draft_work
from coatcheck.services.server.task_stage import task_of
from coatcheck.services.settings import ServerSettings
from coatcheck.tasks.learning import Learning

WORK = draft_work(Learning(dimension=3, share_mean=True))


def settings(
    folder: Path, private_task_parameters: str = "private_task_parameters.json"
) -> ServerSettings:
    """Return settings whose `private_task_parameters` is in this folder."""
    return ServerSettings(
        name="server",
        store="memory:",
        keys=("server.key",),
        shufflers=("http://localhost",),
        board="http://localhost",
        private_task_parameters=private_task_parameters,
        folder=str(folder),
    )


def write(folder: Path, text: str, *, mode: int = 0o600) -> None:
    """Write the file with these permissions."""
    (folder / "private_task_parameters.json").write_text(text, encoding="utf-8")
    (folder / "private_task_parameters.json").chmod(mode)


def test_the_direction_comes_from_the_file_and_is_not_in_the_terms(tmp_path: Path) -> None:
    """The task in the terms cannot choose a direction; with the server's file it can."""
    assert "direction" not in WORK.params
    write(tmp_path, json.dumps({"learning": {"direction": [1.0, 0.0, 0.0]}}))
    gradients = np.eye(3)
    (told,) = task_of(WORK, settings(tmp_path))([gradients])
    assert told.take(np.array([0])) is not None
    with pytest.raises(Misuse, match="no `direction` to judge gradients by"):
        task_of(WORK, settings(tmp_path, private_task_parameters=""))([gradients])


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("{", 0o600, "is no file of task parameters"),
        ('{"learning": 3}', 0o600, "is no file of task parameters"),
        ('{"learning": {"direction": [1.0]}}', 0o600, "`direction` must have 3 numbers"),
        ('{"learning": {"compass": 1}}', 0o600, "does not take these parameters"),
        ("{}", 0o644, "other users can read"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, mode: int, sentence: str) -> None:
    """The error names the file, or the parameter that does not fit."""
    write(tmp_path, text, mode=mode)
    with pytest.raises((Misuse, Refused), match=sentence):
        task_of(WORK, settings(tmp_path))
