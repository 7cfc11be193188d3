"""Every task works without numba, and nothing loads it unasked."""

import subprocess
import sys

import pytest

ALL_TASKS = """
import sys
{block}
import numpy as np
from coatcheck.entropy import seeded
from coatcheck.tasks import answer, load, names, ReadsNotes
from coatcheck.tasks.solvers.close_pairs import agreement
for name in names():
    found = load(name)
    task = found.example() if hasattr(found, "example") else found()
    wide = getattr(task, "dimensions", (2,) * len(task.groups))
    places = [seeded(1).uniforms(200 * d).reshape(200, d) for d in wide]
    size = task.note_size if isinstance(task, ReadsNotes) else 0
    answer(task, places, notes=[np.zeros((200, size), np.uint8)] if size else None)
truth, noisy = (seeded(s).uniforms(3000).reshape(1500, 2) for s in (1, 2))
found = agreement(truth, noisy, radius=0.1)
print(found.true, found.noisy, found.both, "numba" in sys.modules and bool(sys.modules["numba"]))
"""


@pytest.fixture(scope="module")
def outputs() -> list[list[str]]:
    """What the program prints with numba, and with its import blocked."""
    printed = []
    for block in ("", "sys.modules['numba'] = None"):
        done = subprocess.run(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-c", ALL_TASKS.format(block=block)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.split())
    return printed


def test_the_same_figures_without_numba(outputs: list[list[str]]) -> None:
    """Counts agree to the last pair, and the compiled way was used only in the first process."""
    compiled, plain = outputs
    assert compiled[:3] == plain[:3]
    assert (compiled[3], plain[3]) == ("True", "False")


def test_loading_tasks_does_not_load_numba() -> None:
    """Numba takes half a second: it is imported when a kernel is first called."""
    code = (
        "import sys, coatcheck; coatcheck.Neighbours(radius=1.0); sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603 - ours
