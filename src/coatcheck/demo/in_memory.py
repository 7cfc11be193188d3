"""The demo without the services' packages: the same round in one process, with the real roles.

Nothing here needs more than the plain install. It says that it is a simulation, and what to
install for the round of real processes.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from coatcheck.errors import Misuse
from coatcheck.simulation.quality import names_many
from coatcheck.simulation.trial import Trial, run_trial

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.entropy import Entropy

_PACKAGES: Final = ("httptools", "httpx2", "prometheus_client", "uvicorn", "uvloop")
INSTALL: Final = "pip install 'coatcheck[serve]'"
"""What brings the services' packages."""


def missing() -> list[str]:
    """Name the services' packages that are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def rehearse(scenario: "Scenario", *, entropy: "Entropy | int") -> Trial:
    """Run the round of a scenario in memory, and measure how well its people are served."""
    task = scenario.task if names_many(scenario.task) else scenario.alone
    if scenario.box is None or task is None:
        raise Misuse(f"the {scenario.name} demo runs with services only: {INSTALL}")
    return run_trial(
        dict(zip(task.groups, scenario.values, strict=True)),
        task=task,
        box=scenario.box,
        epsilon=scenario.epsilon,
        entropy=entropy,
        settle=names_many(task),
    )
