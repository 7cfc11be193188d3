"""A blob store on a real S3 server on loopback: as a folder is, and nothing is left in it."""

import asyncio
import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Misuse, Unavailable
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.services.web.client import HttpClient
from coatcheck.services.worker_pools import remote_settings
from coatcheck.stores import blobs as buckets
from coatcheck.stores.blobs import S3BlobStore
from support.blob_stores import ONE, check_blob_store
from support.buckets import Bucket
from support.service_rounds import QUICK, Crowd, draft, status, until

# Libraries of others use names that will go away some day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    """An empty bucket."""
    with Bucket() as made:
        yield made
    buckets._opened.cache_clear()


def test_files_are_kept_by_round_and_key(bucket: Bucket) -> None:
    """What is put is there, in part or whole, and goes with its key alone."""
    check_blob_store(S3BlobStore(f"{bucket.url}/some/role"))
    assert bucket.names() == []


def test_what_another_process_does_is_seen_at_once(bucket: Bucket) -> None:
    """No listing is remembered: a part that a node put there is there."""
    blobs = S3BlobStore(f"{bucket.url}/role/")
    assert blobs.names(ONE) == set() == blobs.rounds()
    bucket.put(f"role/{ONE[0].hex()}.{ONE[1]}/in-0", b"raw")
    assert (blobs.names(ONE), blobs.rounds()) == ({"in-0"}, {ONE})
    assert blobs.get(ONE, "in-0") == b"raw"
    bucket.remove(f"role/{ONE[0].hex()}.{ONE[1]}/in-0")
    assert blobs.names(ONE) == set() == blobs.rounds()


def test_an_abandoned_round_leaves_nothing(bucket: Bucket, tmp_path: Path) -> None:
    """Its objects are sealed while they are there, and go with the key."""
    place = f"{bucket.url}/role"
    store = ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", tmp_path / "keys", place)
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(b"d" * 32, "one", b"signed"), fence=1)
    store.files(b"d" * 32).put("in-0", b"sixteen bytes or more")
    assert store.files(b"d" * 32).get("in-0") == b"sixteen bytes or more"
    (name,) = bucket.names()
    assert name == f"role/{(b'd' * 32).hex()}.round/in-0"
    assert b"sixteen" not in bucket.get(name)
    store.move(b"d" * 32, "abandon", fence=1, end=b"end")
    assert bucket.names() == []
    store.close()


def test_no_such_bucket_is_told(bucket: Bucket) -> None:
    """With its address, so that somebody can make it."""
    del bucket
    with pytest.raises(Unavailable, match=r"cannot write to the blob store s3://nobodys: .*bucket"):
        S3BlobStore("s3://nobodys").put(ONE, "in-0", b"raw")


def test_other_addresses_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that shows half a file, and one whose library is not installed."""
    with pytest.raises(Misuse, match="not sftp://; mount that file system"):
        S3BlobStore("sftp://host/blobs")
    real = builtins.__import__

    def absent(name: str, *given: Any, **named: Any) -> Any:
        if name == "fsspec":
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(Misuse, match=r"pip install 'coatcheck\[s3\]'"):
        S3BlobStore("s3://bucket/blobs")
    settings = ShufflerSettings(
        name="s", store="sqlite:s.db", keys=("k",), blobs="s3://b/d", folder=str(tmp_path)
    )
    assert settings.places[2] == "s3://b/d" == remote_settings(settings).blobs


def test_a_round_whose_store_of_objects_is_away_for_a_while(bucket: Bucket, tmp_path: Path) -> None:
    """Both roles say so and keep the round; it ends by itself, and leaves nothing there."""
    blobs = {role: {"blobs": f"{bucket.url}/{role}"} for role in ("shuffler", "server")}
    with Cluster(tmp_path, extra=QUICK, role_extra=blobs) as cluster:
        url = cluster.open_round(draft("objects"), closes=1, expires=3600)
        log = cluster.folder / "shuffler-1.log"

        async def whole() -> None:
            async with HttpClient() as peers:
                crowd = Crowd(cluster, url)
                bucket.stop()
                await crowd.join(peers, people=4)
                told = "release: cannot read the blob store s3://coatcheck/shuffler: "
                await asyncio.to_thread(until, lambda: told in log.read_text())
                assert status(url)["phase"] == "closed"
                bucket.start()
                answers = await crowd.collect()
                assert all(len(answer.partners) == 1 for answer in answers)

        asyncio.run(whole())
        until(lambda: bucket.names() == [])
