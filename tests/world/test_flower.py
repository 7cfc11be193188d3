"""Flower: updates go through coatcheck's services, and Flower sees one reply from all."""

import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coatcheck.domains import Ball
from coatcheck.planning import Group, Plan, plan
from coatcheck.protocol.client import Limit
from coatcheck.services.local_cluster import Cluster
from coatcheck.tasks.learning import Descent

# Flower and what it imports use names of others that will go away some day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PEOPLE, PARAMETERS = 6, 5
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "flower"
SETTINGS = """
[superlink]
default = "here"
[superlink.here]
address = ":local:"
options.num-supernodes = 8
options.backend.client-resources.num-cpus = 1
options.backend.init-args.num-cpus = 2
"""


class Hall:
    """A grid whose clients are in this process, one after another."""

    def __init__(self, folder: Path, cluster: Cluster, *, patience: float = 60.0) -> None:
        from flwr.app import ArrayRecord, Context, Message, RecordDict  # noqa: PLC0415 - an extra
        from flwr.clientapp import ClientApp  # noqa: PLC0415 - an extra
        from flwr.supercore.task_identity import TaskIdentity  # noqa: PLC0415 - an extra

        from coatcheck.services.flower import Participant, attach  # noqa: PLC0415 - an extra

        # As Flower's own processes say before they run an app.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app: Any = ClientApp()
        self.wrong: dict[int, Any] = {}
        self.folder = folder
        self._context: Any = lambda node: Context(1, node, {}, RecordDict(), {})

        def participant(_: Any) -> Any:
            return Participant(
                trusted=cluster.trusted,
                limit=Limit(20.0, 0.01),
                clip=1.0,
                folder=folder,
                patience=patience,
            )

        private = attach(self.app, participant)

        @self.app.train(mods=[private])  # type: ignore[untyped-decorator]
        def train(message: Any, context: Any) -> Any:
            (model,) = message.content["arrays"].to_numpy_ndarrays()
            step = self.wrong.get(context.node_id, np.full(PARAMETERS, 0.1))
            after = model - step if np.shape(step) == model.shape else step
            return Message(RecordDict({"arrays": ArrayRecord([after])}), reply_to=message)

    def get_node_ids(self) -> list[int]:
        """Name everybody."""
        return list(range(1, PEOPLE + 1))

    def send_and_receive(self, messages: Any, **_: Any) -> list[Any]:
        """Hand each message to its client and return the replies."""
        return [self.app(one, self._context(one.metadata.dst_node_id)) for one in messages]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run real services on loopback."""
    folder = tmp_path_factory.mktemp("flower")
    with Cluster(folder, extra={"tick": 0.1, "workers": 1}) as services:
        yield services


@cache
def planned() -> Plan:
    """Plan for a small model, once for all tests."""
    ball = Ball(radius=1.0, p=2, dimension=PARAMETERS)
    group = {"people": Group(ball, PEOPLE)}
    return plan(group, epsilon=12.0, delta=1e-3, goal="unbiased", rate=0.9)


def strategy_for(cluster: Cluster, name: str) -> Any:
    """Make the strategy of a small model."""
    from coatcheck.services.flower import Organiser, PrivateMean  # noqa: PLC0415 - an extra

    organiser = Organiser.of(
        planned(), dimension=PARAMETERS, server=cluster.url("server"), token=cluster.token, closes=1
    )
    descent = Descent(step=1.0, rounds=2, momentum=0.0)
    return PrivateMean(organiser=organiser, descent=descent, clients=PEOPLE, name=name)


def one_round(strategy: Any, hall: Hall, number: int = 1) -> tuple[Any, Any, list[Any]]:
    """Run one of Flower's rounds: the arrays, the metrics and the replies to `train`."""
    from flwr.app import ArrayRecord, ConfigRecord  # noqa: PLC0415 - an extra

    arrays = ArrayRecord([np.zeros(PARAMETERS)])
    asked = strategy.configure_train(number, arrays, ConfigRecord({}), hall)
    replies = hall.send_and_receive(asked)
    found, metrics = strategy.aggregate_train(number, replies)
    return found.to_numpy_ndarrays()[0], metrics, replies


def test_the_model_moves_and_every_reply_is_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """A client that reports and one that is silent send the same reply; each ticket is private."""
    hall = Hall(tmp_path / "people", cluster)
    model, metrics, replies = one_round(strategy_for(cluster, "moves"), hall)
    assert dict(metrics) == {"reported": PEOPLE, "followed": 1}
    assert np.all(np.isfinite(model))
    assert np.linalg.norm(model) > 0
    assert {repr(dict(reply.content)) for reply in replies} == {repr(dict(replies[0].content))}
    assert "arrays" not in replies[0].content
    tickets = list((tmp_path / "people").glob("*.ticket"))
    assert len(tickets) == PEOPLE
    assert {path.stat().st_mode & 0o777 for path in tickets} == {0o600}


def test_wrong_updates_are_not_sent_and_the_model_stays(cluster: Cluster, tmp_path: Path) -> None:
    """NaN, another shape: no report leaves, Flower is told no reason, the round falls short."""
    hall = Hall(tmp_path / "people", cluster, patience=2.0)
    hall.wrong = {1: np.full(PARAMETERS, np.nan), 2: np.zeros(PARAMETERS + 1)}
    model, metrics, replies = one_round(strategy_for(cluster, "wrong"), hall)
    assert dict(metrics) == {"reported": PEOPLE - 2, "followed": 0}
    assert (model == 0).all()
    said = [reply.error.reason for reply in replies if reply.has_error()]
    assert said == ["this client did not take part; its log says why"] * 2
    assert len(list((tmp_path / "people").glob("*.ticket"))) == PEOPLE - 2


def test_a_client_that_is_asked_again_sends_the_same_report(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The stored ticket is used, whatever the second training gave."""
    from flwr.app import ArrayRecord, ConfigRecord  # noqa: PLC0415 - an extra

    hall, strategy = Hall(tmp_path / "people", cluster), strategy_for(cluster, "again")
    arrays = ArrayRecord([np.zeros(PARAMETERS)])
    asked = list(strategy.configure_train(1, arrays, ConfigRecord({}), hall))
    hall.send_and_receive(asked[:1])
    (ticket,) = (tmp_path / "people").glob("*.ticket")
    before = ticket.read_bytes()
    hall.wrong = {asked[0].metadata.dst_node_id: np.full(PARAMETERS, -3.0)}
    replies = hall.send_and_receive(asked)
    assert ticket.read_bytes() == before
    assert dict(strategy.aggregate_train(1, replies)[1]) == {"reported": PEOPLE, "followed": 1}


def test_the_example_runs_by_one_command(tmp_path: Path) -> None:
    """`flwr run` in simulation, with real services on loopback; nothing is left running."""
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text(SETTINGS, encoding="utf-8")
    flwr = shutil.which("flwr", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert flwr is not None
    told = {
        **os.environ,
        "PATH": f"{Path(flwr).parent}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": "19193",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    settings = f'people=8 rounds=2 home="{tmp_path / "run"}"'
    command = [flwr, "run", str(EXAMPLE), "here", "--stream", "--run-config", settings]
    try:
        done = subprocess.run(  # noqa: S603 - the example of this repository
            command, env=told, capture_output=True, text=True, check=False, timeout=900
        )
    finally:
        _stop(home)
    assert "after round 2:" in done.stdout + done.stderr, done.stdout[-3000:] + done.stderr[-3000:]
    assert "'reported': 8, 'followed': 1" in done.stdout + done.stderr
    assert len(list((tmp_path / "run" / "people").glob("*.ticket"))) == 16


def _stop(home: Path) -> None:
    """End what `flwr run` leaves behind: the processes whose FLWR_HOME is this folder."""
    mark = f"FLWR_HOME={home}".encode()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGTERM)
        except OSError:
            continue
