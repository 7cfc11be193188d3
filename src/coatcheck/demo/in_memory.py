"""The demo without the services' packages: the same round in one process, with the real roles.

It needs only the plain install. Its output says that it is a simulation, and what to install for
a round of real processes.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from coatcheck.demo.trilateration import trilateration
from coatcheck.errors import Misuse
from coatcheck.simulation.trial import Trial, run_trial

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.entropy import Entropy

_PACKAGES: Final = ("httptools", "httpx2", "prometheus_client", "uvicorn", "uvloop")
INSTALL: Final = "pip install 'coatcheck[serve]'"
"""The command that installs the services' packages."""


def missing_packages() -> list[str]:
    """Return the services' packages that are not installed."""
    return [name for name in _PACKAGES if find_spec(name) is None]


def run_in_memory(scenario: "Scenario", *, entropy: "Entropy | int") -> Trial:
    """Run the round of a scenario in memory, and measure how well its people are served."""
    if scenario.box is None or scenario.alone is None:
        raise Misuse(f"the {scenario.name} demo needs the services' packages: {INSTALL}")
    near = scenario.task.name == "neighbours"
    return run_trial(
        dict(zip(scenario.task.groups, scenario.values, strict=True)),
        task=scenario.task,
        box=scenario.box,
        epsilon=scenario.epsilon,
        entropy=entropy,
        settle=scenario.settle,
        alone=scenario.alone if near else None,
        decoys=0,
    )


def attack(scenario: "Scenario", trial: Trial) -> dict[str, Any]:
    """Return what a trilaterator learns in a rounding app, in this round and in several rounds."""
    candidates = trial.outcome.answers[0][-1].partners
    near = [pair for pair in trial.settled if pair[0] == len(scenario.values[0]) - 1]
    return {
        **trilateration(scenario),
        "this_round": {"candidates": len(candidates), "near": len(near)},
    }
