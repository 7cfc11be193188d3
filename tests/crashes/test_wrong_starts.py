"""Roles that must not start: a wrong clock, a damaged store or a lost folder gives an error."""

import asyncio
import time
from pathlib import Path

import pytest

from coatcheck.errors import Damaged, Misuse, Refused
from coatcheck.services import rounds as live_rounds
from coatcheck.services.clock import Clock
from coatcheck.services.database_writer import Leadership
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import ShufflerSettings, read_settings
from coatcheck.services.shuffler.routes import ShufflerService
from coatcheck.services.shuffler.store import ShufflerStore
from support.service_rounds import QUICK, draft, get, logs, until

pytestmark = pytest.mark.service


def test_a_clock_that_is_off_stops_a_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A role one hour ahead of server and board exits before its first step; others go on."""
    with Cluster(tmp_path, extra=QUICK) as cluster:
        cluster.open_round(draft("clocks"), closes=1000, expires=2000)
        cluster.kill("shuffler-1")
        settings = read_settings(
            tmp_path / "shuffler-1.toml", role="shuffler", kind=ShufflerSettings
        )

        async def compared(off: float) -> ShufflerService:
            service = ShufflerService(settings)
            service.url = cluster.url("shuffler-1")
            service.clock = Clock(wall=lambda: time.time() + off)
            while not service.leadership.leads:  # the lease of the one that died has to end
                await service.leadership.renew()
                await asyncio.sleep(0.05)
            await service.compare()
            await service.leadership.end()
            await service.end()
            return service

        assert asyncio.run(compared(30)).failure == ""
        failed = asyncio.run(compared(3600))
        assert "clocks of all other roles" in failed.failure
        assert "NTP" in failed.failure
        assert "off that of" in caplog.text
        cluster.kill("board")
        cluster.kill("server")
        monkeypatch.setattr(live_rounds, "COMPARING", 0.5)
        assert asyncio.run(compared(3600)).failure == ""  # nobody to compare with


def test_a_damaged_database_ends_the_role_with_an_error(tmp_path: Path) -> None:
    """Bytes that are no database, and an overwritten page: an error and no traceback."""
    cluster = Cluster(tmp_path, extra=QUICK)
    file = tmp_path / "shuffler-1.db"
    file.write_bytes(b"this is no database, " * 1000)
    with pytest.raises(Damaged, match="damaged"):
        ShufflerStore(f"sqlite:{file}", tmp_path / "keys")
    with pytest.raises(Refused, match="the database is damaged"):
        cluster.start("shuffler-1")
    assert "Traceback" not in logs(tmp_path)
    file.unlink()
    store = ShufflerStore(f"sqlite:{file}", tmp_path / "keys")
    store.lead("me", seconds=0)
    for number in range(300):
        store.pledge(f"round {number}", bytes(32), fence=1)
    store.close()
    with file.open("r+b") as stream:
        stream.seek(3 * 4096)
        stream.write(b"\xff" * 4096)
    with pytest.raises(Refused, match="restore a backup in its place"):
        cluster.start("shuffler-1")
    cluster.end()
    assert "Traceback" not in logs(tmp_path)


def test_damage_that_comes_later_ends_the_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that turns out to be damaged while a role runs ends it with an error."""
    store, told = ShufflerStore("memory:"), list[str]()

    def lead(holder: str, *, seconds: float) -> int:
        raise Damaged(f"the database is damaged ({holder[:0]}{seconds:g})")

    async def gained() -> None:
        """Nothing is read."""

    monkeypatch.setattr(store, "lead", lead)
    leadership = Leadership(store, seconds=1, gained=gained)
    leadership.failed = told.append
    asyncio.run(leadership.renew())
    assert told == ["the database is damaged (1)"]
    assert not leadership.leads


def test_a_process_with_another_folder_of_keys_is_no_standby(tmp_path: Path) -> None:
    """It could not take over the rounds, so it exits; with the right folder it stays."""
    with Cluster(tmp_path, extra={**QUICK, "lease": 1.0}) as cluster:
        text = (tmp_path / "shuffler-1.toml").read_text()
        text = text.replace("shuffler-1.address", "shuffler-1b.address")
        (tmp_path / "shuffler-1b.toml").write_text(text)
        cluster.start("shuffler-1b")
        text += 'round_keys = "elsewhere"\n'
        (tmp_path / "shuffler-1c.toml").write_text(text.replace("-1b.address", "-1c.address"))
        cluster.start("shuffler-1c", wait=False)
        until(lambda: not cluster.running("shuffler-1c"))
        with pytest.raises(Refused, match="another folder of round keys"):
            cluster.check("shuffler-1c")
        assert cluster.running("shuffler-1b")
        assert get(f"{cluster.url('shuffler-1')}/healthz").json()["leads"]


def test_a_folder_that_was_lost_is_a_new_one(tmp_path: Path) -> None:
    """After a reboot tmpfs is empty: once the old lease is over, the process leads again."""
    url = f"sqlite:{tmp_path / 'store.db'}"
    old, new = ShufflerStore(url, tmp_path / "old"), ShufflerStore(url, tmp_path / "new")
    assert old.lead("me", seconds=60) == 1
    with pytest.raises(Misuse, match="another folder"):
        new.lead("you", seconds=60)
    assert old.lead("me", seconds=0) == 1
    until(lambda: new.lead("you", seconds=60) == 2)
    old.close()
    new.close()
