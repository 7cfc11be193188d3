"""The services of a demo: how they are started, and what only the server is told of the task."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from coatcheck.files import write_bytes
from coatcheck.services.cluster import Cluster

if TYPE_CHECKING:
    from coatcheck.demo.scenarios import Scenario

_INSIGHT: Final = "insight.json"


def demo_cluster(folder: Path) -> Cluster:
    """Make a shuffler, a server and a board for a run, with a relay and a witness."""
    # One worker: a demo's crowd is too small for more to pay.
    insight = {"server": {"insight": _INSIGHT}}
    extra = {"tick": 0.1, "workers": 1}
    return Cluster(folder, relay=True, witnesses=1, extra=extra, role_extra=insight)


def tell_server(cluster: Cluster, scenario: "Scenario") -> None:
    """Write down what only the server knows of the task."""
    known, insight = {}, scenario.insight
    if insight is not None:
        known = {scenario.task.name: {"direction": insight.direction.tolist()}}
    path = cluster.folder / _INSIGHT
    write_bytes(path, msgspec.json.encode(known), secret=True, replace=True)
