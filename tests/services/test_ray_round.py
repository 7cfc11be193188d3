"""Real rounds of more than one partition whose stages are done on nodes of Ray that are lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import scale
from bench._nodes import Nodes
from bench._reports import in_groups, uploads
from coatcheck.errors import Unavailable
from coatcheck.protocol.agreement import read_signed
from coatcheck.protocol.manifest import PART
from coatcheck.protocol.notices import ANSWERED, Heading
from coatcheck.services import faults
from coatcheck.services.cluster import Cluster
from coatcheck.services.runners import ray as rays
from coatcheck.services.server.answering import Answering
from coatcheck.services.settings import RaySettings, ShufflerSettings, read_settings
from coatcheck.stores.shuffler import ShufflerStore
from large_batch import LargeBatch
from service_rounds import QUICK, get, status, until

EACH = PART // 2 + 500
PLACES = ("stage.opened", "stage.compute", "stage.dealt", "stage.seal")


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a file ends the process on a node that comes to a place."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[Nodes]:
    """Two nodes."""
    env = {faults.VARIABLE: str(marks)}
    with Nodes(tmp_path_factory.mktemp("nodes"), env=env) as made:
        yield made
    rays._joined.cache_clear()


@pytest.mark.slow
def test_an_answer_whose_node_is_killed_in_each_stage(
    nodes: Nodes, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill -9 of a raylet in *open*, *deal* and *seal*, and of the process that computes.

    Everybody has their one answer, and every part is written down once.
    """
    large = LargeBatch(tmp_path, runner="ray", ray=RaySettings(**nodes.settings()))
    (marks / "stage.compute").touch()
    real, noted = Answering._note, list[str]()

    def note(self: Answering, name: str, raw: bytes) -> None:
        real(self, name, raw)
        stage = name.partition(" ")[0]
        if stage in {"open", "deal", "seal"} and stage not in {one.split()[0] for one in noted}:
            if noted:
                nodes.mend()
            nodes.kill()
        noted.append(name)

    monkeypatch.setattr(Answering, "_note", note)
    end = None
    while end is None:
        try:
            end = large.make()
        except Unavailable as error:
            assert "Ray cluster" in str(error)  # noqa: PT017 - the next try goes on
    nodes.mend()
    assert not list(marks.iterdir())
    assert len(noted) == len(set(noted)) == 3 + 1 + 1 + 3 + 2
    large.check(end)


def fill(cluster: Cluster, digest: str) -> None:
    """Put everybody's uploads into the shuffler's store, as a process beside it does."""
    config = cluster.folder / "shuffler-1.toml"
    settings = read_settings(config, role="shuffler", kind=ShufflerSettings)
    store = ShufflerStore(settings.store_url, settings.round_key_folder)
    signed = read_signed(store.round(bytes.fromhex(digest)).signed)
    for group in in_groups(uploads(signed, 2 * EACH, stand_in=False)):
        store.put(group)
    store.close()


def said(cluster: Cluster, name: str, *texts: str) -> None:
    """Wait until a service has logged one of these."""
    log = cluster.folder / f"{name}.log"
    until(lambda: any(text in log.read_text(encoding="utf-8") for text in texts))


def test_a_round_on_nodes_that_come_late_and_go_early(
    nodes: Nodes, marks: Path, tmp_path: Path
) -> None:
    """No cluster, then a wrong token: both are told. Then a node is killed, and all are answered.

    And a process in each stage of the server. Of every report there is one entry, and neither
    depot has a file of the round.
    """
    head, token = tmp_path / "head", tmp_path / "some.token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    ray = {"address": "@head", "token": token.name, "node": "127.0.0.2"}
    extra = {**QUICK, "peer_timeout": 120.0, "runner": "ray", "ray": ray}
    with Cluster(tmp_path, extra=extra) as cluster:
        head.write_text("127.0.0.2:1")
        url = cluster.open_round(scale._plan(EACH), closes=1, expires=36_000)
        digest = url.rpartition("/")[2]
        fill(cluster, digest)
        said(cluster, "shuffler-1", "release: no Ray cluster is at 127.0.0.2:1: ")
        assert status(url)["phase"] == "closed"
        head.write_text(nodes.address)
        refused = f"release: the Ray cluster at {nodes.address} refuses the token in {token}"
        said(cluster, "shuffler-1", refused)
        assert status(url)["phase"] == "closed"
        token.write_bytes(nodes.token.read_bytes())
        for place in PLACES:
            (marks / place).touch()
        # A quick machine has released before it tells how far it is: then the server loses a node.
        said(cluster, "shuffler-1", ": peel ", ": released")
        nodes.kill()
        until(lambda: bool(get(f"{cluster.url('board')}/rounds/{digest}").json()["shown"]))
        heading = Heading.decode(get(f"{cluster.url('board')}/rounds/{digest}/heading").content)
        assert heading.outcome == ANSWERED
        assert [tally.kept for tally in heading.tallies] == [EACH, EACH]
        until(lambda: not [path for path in tmp_path.glob("*.depot/*/*") if path.is_file()])
        assert not list(marks.iterdir())
        assert "InvalidAuthToken" not in (tmp_path / "shuffler-1.log").read_text(encoding="utf-8")
