"""Worker processes: a dead one is replaced, and all end with the service."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coatcheck.errors import Unavailable
from coatcheck.services.worker_pools import JobWorkers
from support.service_rounds import until

pytestmark = pytest.mark.service


def test_a_worker_that_dies_is_replaced() -> None:
    """The job of a worker that dies fails with an error that allows a retry; the next job runs."""

    async def whole() -> None:
        workers = JobWorkers()
        first = await workers.run(os.getpid)
        assert first != os.getpid()
        with pytest.raises(Unavailable, match="tried again"):
            await workers.run(os._exit, 9)
        assert await workers.run(os.getpid) not in {first, os.getpid()}
        workers.close()

    asyncio.run(whole())


def test_jobs_that_never_end_do_not_keep_the_others_out(tmp_path: Path) -> None:
    """A caller that stops waiting ends its job: four endless jobs leave both workers free."""
    paths = [tmp_path / str(number) for number in range(4)]

    async def whole() -> None:
        workers = JobWorkers()
        for path in paths:
            job = asyncio.create_task(workers.run(_stay, path))
            await asyncio.to_thread(until, path.exists)
            job.cancel()
            await asyncio.wait([job])
        assert await workers.run(os.getpid) != os.getpid()
        workers.close()

    asyncio.run(whole())
    pids = [path.read_text() for path in paths]
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def _stay(path: Path) -> None:
    """Record this process's id and stay."""
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(6000)


def test_workers_end_with_their_service(tmp_path: Path) -> None:
    """After a service dies by kill -9, none of its workers remains."""
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, time\n"
        "from coatcheck.services.worker_pools import JobWorkers\n"
        "from os import getpid\n"
        "if __name__ == '__main__':\n"
        "    print(asyncio.run(JobWorkers().run(getpid)), flush=True)\n"
        "    time.sleep(6000)\n"
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
    until(lambda: not Path(f"/proc/{worker}").exists())


def test_a_killed_service_leaves_no_alarming_line() -> None:
    """Python's tracker removes the semaphores of killed processes; it reports no leak of them."""
    code = (
        "import os, signal; from coatcheck.services.worker_pools import WorkerPool;"
        " pool = WorkerPool(1); print(pool.submit(os.getppid).result() == os.getpid(), flush=True);"
        " os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(  # noqa: S603 - our own code; it ends when the tracker has, too
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "True\n", "")
