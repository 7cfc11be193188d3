"""What a role says of a cluster of Ray that it cannot use; `test_round.py` mends one."""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from bench._nodes import HEAD, Nodes
from coatcheck.errors import Full, Unavailable
from coatcheck.services import ray_runner as rays
from coatcheck.services.settings import RaySettings, Settings
from coatcheck.services.worker_pools import PartArgs, Stage, runner_for
from coatcheck.stores import open_blobs
from coatcheck.stores.blobs import SealedFiles
from coatcheck.stores.round_keys import RoundKeys
from support.certificates import certify
from support.ray_stages import failing, leaks, whose

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
WORDS = "words of a person that no log may have"


class Parts:
    """Has parts of a stage done on the cluster, and keeps what came of them."""

    def __init__(self, folder: Path, nodes: Nodes) -> None:
        self.folder, self.nodes = folder, nodes
        self.told: list[bytes] = []
        self.use()

    def use(self, **other: str) -> None:
        """Use the cluster with other settings than those that serve."""
        self.settings = Settings(
            name="s",
            store="sqlite:s.db",
            keys=("k",),
            folder=str(self.folder),
            runner="ray",
            ray=RaySettings(**{**self.nodes.settings(), **other}),
        )

    def run(self, stage: Stage, parts: Iterable[PartArgs]) -> None:
        """Do parts, with the settings as they are now."""
        url, keys, place = self.settings.places
        files = SealedFiles(RoundKeys(keys), open_blobs(place, url=url, keys=keys), bytes(32))
        runner = runner_for(self.settings, files, is_small=False)
        runner.run(stage, parts, lambda _, result: self.told.append(result))


@pytest.fixture
def some(tmp_path: Path, nodes: Nodes) -> Parts:
    """Parts of a round that is not there, as no stage here reads it."""
    return Parts(tmp_path, nodes)


def test_a_driver_that_is_lost_is_replaced(some: Parts) -> None:
    """As when the cluster is gone: the step fails with a sentence, and the next one goes on."""
    some.run(whose, [(1,)])
    driver = rays._driver(some.settings.cluster)

    def parts() -> Iterator[PartArgs]:
        yield (2,)
        driver._process.kill()
        driver._process.join()
        yield (3,)

    with pytest.raises(Unavailable, match="was lost; what was under way is done again"):
        some.run(whose, parts())
    some.run(whose, [(4,)])
    assert rays._driver(some.settings.cluster) is not driver
    assert b"%d" % os.getpid() not in some.told


def test_errors_of_a_node_are_told_as_they_are(some: Parts) -> None:
    """Those of ours by kind and text, others by kind and line; none is in what Ray writes."""
    for kind in (Full, Unavailable):
        with pytest.raises(kind, match=rf"^no room \(on node {socket.gethostname()}\)$"):
            some.run(failing, [(kind.__name__, "no room")])
    with pytest.raises(Unavailable, match=r"failing failed: ValueError at ray_stages.py") as caught:
        some.run(failing, [("other", WORDS)])
    assert WORDS not in str(caught.value)
    assert not leaks(some.nodes, [WORDS.encode()])


def test_nobody_at_the_address_is_told_and_mended(some: Parts, tmp_path: Path) -> None:
    """At once, though Ray would wait for minutes; an address in a file is read at each try."""
    some.use(address="@head")
    with pytest.raises(Unavailable, match="head does not exist yet"):
        some.run(whose, [(1,)])
    (tmp_path / "head").write_text("127.0.0.2:1\n")
    with pytest.raises(
        Unavailable, match=r"no Ray cluster is at 127.0.0.2:1: .* check that its head runs"
    ):
        some.run(whose, [(1,)])
    (tmp_path / "head").write_text(some.nodes.address)
    some.run(whose, [(1,)])
    assert len(some.told) == 1


def test_wrong_certificates_are_told(some: Parts, tmp_path: Path) -> None:
    """Another CA, a certificate of another CA, files that are not there: each at once."""
    certify(tmp_path, HEAD)
    files = {"tls_certificate": "tls.pem", "tls_key": "tls.key"}
    some.use(tls_ca="tls.pem")
    with pytest.raises(
        Unavailable, match=r"has a certificate that the CA in .*tls.pem did not sign: "
    ):
        some.run(whose, [(1,)])
    some.use(**files)
    with pytest.raises(Unavailable, match=r"refuses the certificate in .*tls.pem; use one that"):
        some.run(whose, [(1,)])
    (tmp_path / "tls.key").unlink()
    with pytest.raises(Unavailable, match=r"cannot use the files .*tls.key.*: .*No such file"):
        some.run(whose, [(1,)])
