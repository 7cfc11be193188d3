"""People of a demo: spread over processes, sharing one copy of public documents."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from coatcheck.cli import files, output
from coatcheck.cli.output import hint
from coatcheck.demo.events import Done, Invited
from coatcheck.demo.people import CachedClient, People, SharedHttpCache, Spread
from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.client import Limit
from coatcheck.protocol.oblivious_http import Response

HERE = "http://127.0.0.1:9"
ROUND = f"{HERE}/rounds/{'0' * 64}"


def invited(homes: Path) -> Invited:
    """Return the invitations of four people to a round at no address."""
    return Invited(
        url=ROUND,
        relay=HERE,
        trusted=Trust(),
        homes=homes,
        names=("members",),
        values={(0, row): [0.0] for row in range(4)},
        limit=Limit(1.0, 1e-5),
        lines=("", ""),
    )


class Counted(SharedHttpCache):
    """A household whose requests are counted instead of sent; the first one finds nobody."""

    def __init__(self) -> None:
        super().__init__(HERE, first=ROUND, trusted=Trust(), http=CachedClient())
        self.asked: Counter[str] = Counter()

    async def _exchange(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        del body, headers
        self.asked[f"{method} {url}"] += 1
        await asyncio.sleep(0)
        if self.asked.total() == 1:
            raise Unavailable("nobody is there")
        return Response(200, (), f"{method} {url}".encode())


def test_public_documents_are_fetched_once() -> None:
    """Copies are shared, failures are not, and growing letters are fetched each time."""

    async def main() -> Counter[str]:
        home = Counted()
        with pytest.raises(Unavailable):
            await home.get(f"{HERE}/checkpoint")
        copies = await asyncio.gather(*(home.get(f"{HERE}/checkpoint") for _ in range(50)))
        assert set(copies) == {f"GET {HERE}/checkpoint".encode()}
        for _ in range(3):
            await home.get(f"{HERE}/letters?since=0")
            await home.send(f"{HERE}/uploads", b"sealed")
        return home.asked

    assert asyncio.run(main()) == {
        f"GET {HERE}/checkpoint": 2,
        f"GET {HERE}/letters?since=0": 3,
        f"POST {HERE}/uploads": 3,
    }


def test_a_failure_in_a_process_of_people_is_raised_and_all_end(tmp_path: Path) -> None:
    """A job for an unknown person fails here with the same error, and the processes end."""
    crowd = Spread(People, processes=2)

    async def main() -> None:
        done: list[Done] = []
        try:
            await crowd.invite(invited(tmp_path))
            with pytest.raises(KeyError):
                await crowd.do("collect", [(7, 0)], done.append)
            assert not done
        finally:
            await crowd.close()

    asyncio.run(main())
    assert not any(process.is_alive() for process in crowd.processes)


def test_a_process_of_people_that_dies_ends_the_job(tmp_path: Path) -> None:
    """The error says to run the demo again."""
    crowd = Spread(People, processes=2)

    async def main() -> None:
        try:
            await crowd.invite(invited(tmp_path))
            crowd.processes[1].kill()
            with pytest.raises(Refused, match="run the demo again"):
                await crowd.do("collect", [], print)
        finally:
            await crowd.close()

    asyncio.run(main())


def test_a_long_command_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line appears after a silence, even without a terminal, but not beside other output."""
    monkeypatch.setattr(output, "_SILENCE", 0.2)
    said = ""
    with output.at_work("people settle"):
        end = time.monotonic() + 60
        while said.count("people settle") < 2 and time.monotonic() < end:
            time.sleep(0.05)
            said += capsys.readouterr().err
    assert said.count("coatcheck: people settle (") >= 2
    monkeypatch.setattr(output, "_SILENCE", 60.0)
    with output.at_work("people settle"):
        hint("done")
    assert capsys.readouterr().err == "coatcheck: done\n"


def test_a_demo_runs_in_memory_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder named by the user is used; a missing or full memory disk is not."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(files, "_DEMO_BYTES", 1)
    assert files.memory_folder(tmp_path) == tmp_path
    assert files.memory_folder(tmp_path / "nowhere") is None
    monkeypatch.setattr(files, "_DEMO_BYTES", 1 << 62)
    assert files.memory_folder(tmp_path) is None
    monkeypatch.setattr(files, "_DEMO_BYTES", 1)
    monkeypatch.setenv("TMPDIR", "/somewhere")
    assert files.memory_folder(tmp_path) is None
