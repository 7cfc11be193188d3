"""A real round of more than one partition whose stages are done on nodes of Ray that are lost."""

import shutil
from pathlib import Path

import pytest

from bench import scale
from bench._nodes import HEAD, Nodes
from bench._reports import in_groups, uploads
from coatcheck.protocol.agreement import read_signed
from coatcheck.protocol.wire.batches import PART
from coatcheck.protocol.wire.bulletins import ANSWERED, Heading
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import ShufflerSettings, read_settings
from coatcheck.services.shuffler.store import ShufflerStore
from support.certificates import certify
from support.service_rounds import QUICK, get, status, until

# Libraries of others use names that will go away some day.
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EACH = PART // 2 + 500
PLACES = ("stage.opened", "stage.compute", "stage.dealt", "stage.seal")


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
    """No cluster, a wrong CA, a wrong token: each is told, and the round stays where it was.

    Then a node is killed, and a process in each stage of the server, and all are answered. Of
    every report there is one entry, and neither blob store has a file of the round.
    """
    head, token = tmp_path / "head", tmp_path / "some.token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    certify(tmp_path, HEAD)
    other = {"address": "@head", "token": token.name, "tls_ca": "tls.pem"}
    ray = {**nodes.settings(), **other}
    extra = {**QUICK, "peer_timeout": 120.0, "runner": "ray", "ray": ray}
    with Cluster(tmp_path, extra=extra) as cluster:
        head.write_text("127.0.0.2:1")
        url = cluster.open_round(scale._plan(EACH), closes=1, expires=36_000)
        digest = url.rpartition("/")[2]
        fill(cluster, digest)
        said(cluster, "shuffler-1", "release: no Ray cluster is at 127.0.0.2:1: ")
        assert status(url)["phase"] == "closed"
        head.write_text(nodes.address)
        said(
            cluster,
            "shuffler-1",
            f"has a certificate that the CA in {tmp_path / 'tls.pem'} did not sign",
        )
        assert status(url)["phase"] == "closed"
        shutil.copy(nodes.token.parent / "tls.pem", tmp_path)
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
        nodes.mend()
        heading = Heading.decode(get(f"{cluster.url('board')}/rounds/{digest}/heading").content)
        assert heading.outcome == ANSWERED
        assert [tally.kept for tally in heading.tallies] == [EACH, EACH]
        until(lambda: not [path for path in tmp_path.glob("*.blobs/*/*") if path.is_file()])
        assert not list(marks.iterdir())
        assert "InvalidAuthToken" not in (tmp_path / "shuffler-1.log").read_text(encoding="utf-8")
