"""Workers: the same results by many hands, keys that never travel, an end with the service."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coatcheck.errors import Unavailable
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keyfiles import read_keys
from coatcheck.services.cluster import make_keys
from coatcheck.services.settings import Settings
from coatcheck.services.workers import Lanes, Workers
from service_rounds import until


def test_many_hands_give_the_same(tmp_path: Path) -> None:
    """Lanes open and seal what one hand does, in the same order, and tell what does not open."""
    make_keys(tmp_path / "role", name="role")
    keys = read_keys(tmp_path / "role.key").pairs
    bound = binding(Purpose.REPORT, digest=bytes(32), group=0)
    texts = [number.to_bytes(4, "big") for number in range(2100)]
    settings = Settings(
        name="role", store="memory:", keys=("role.key",), workers=2, folder=str(tmp_path)
    )
    lanes = Lanes(settings)
    sealed = lanes.seal_each(
        texts, to=[keys.opening.public_raw] * 2100, suite=keys.opening.suite, bound=bound
    )
    sealed[7] = bytes(len(sealed[7]))
    bounds = [bound] * 2100
    opened = lanes.unseal_each(sealed, key=keys.opening, bounds=bounds)
    assert opened == Bulk().unseal_each(sealed, key=keys.opening, bounds=bounds)
    assert opened[:7] == texts[:7]
    assert opened[7] is None


def test_a_worker_that_dies_is_replaced() -> None:
    """A job under which its worker dies is told as to be tried again, and the next one runs."""

    async def whole() -> None:
        workers = Workers()
        first = await workers.run(os.getpid)
        assert first != os.getpid()
        with pytest.raises(Unavailable, match="tried again"):
            await workers.run(os._exit, 9)
        assert await workers.run(os.getpid) not in {first, os.getpid()}
        workers.close()

    asyncio.run(whole())


def test_workers_end_with_their_service(tmp_path: Path) -> None:
    """After kill -9 of whoever started them, no worker stays behind."""
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, time\n"
        "from coatcheck.services.workers import Workers\n"
        "from os import getpid\n"
        "if __name__ == '__main__':\n"
        "    print(asyncio.run(Workers().run(getpid)), flush=True)\n"
        "    time.sleep(6000)\n"
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        process.kill()
    until(lambda: not Path(f"/proc/{worker}").exists())
