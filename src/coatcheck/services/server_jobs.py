"""What a server computes, in its worker: the numbers of terms, and the answers to a batch."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from coatcheck import tasks
from coatcheck.agreement import propose, read_signed, settle, write_signed
from coatcheck.drafting import read_plan
from coatcheck.errors import Misuse
from coatcheck.keyfiles import PublicKeys, read_secret
from coatcheck.server import Phase, Server
from coatcheck.services import faults
from coatcheck.services.keyring import Keyring
from coatcheck.services.settings import ServerSettings
from coatcheck.services.workers import Lanes
from coatcheck.stores import ServerStore, server_store
from coatcheck.suites import suite_named
from coatcheck.terms import Notary, Party, Terms, Work


@cache
def _store(url: str) -> ServerStore:
    return server_store(url)


@cache
def _keyring(paths: tuple[Path, ...]) -> Keyring:
    return Keyring(paths)


def _paths(settings: ServerSettings) -> tuple[Path, ...]:
    return tuple(settings.path(name) for name in settings.keys)


def draft(
    settings: ServerSettings,
    plan: dict[str, Any],
    times: tuple[int, int, int],
    shufflers: list[PublicKeys],
    board: PublicKeys,
) -> bytes:
    """Compute a plan's sizes and promises and sign it as the server."""
    keys = _keyring(_paths(settings))
    suite = suite_named(keys.public.suite)
    made = read_plan(plan, suite)
    opens, closes, expires = times
    try:
        terms = Terms(
            round=made.round,
            suite=suite.name,  # type: ignore[arg-type] # a suite is one of the two
            groups=made.groups,
            task=made.task,
            server=_party(keys.public),
            shufflers=tuple(_party(public) for public in shufflers),
            board=Notary(board.name, board.verifying),
            opens=opens,
            closes=closes,
            expires=expires,
            letter_size=made.letter_size,
        )
        return write_signed(propose(terms, keys=keys.current))
    except msgspec.MsgspecError as error:
        raise Misuse(f"the plan makes no terms: {error}") from None


def _party(public: PublicKeys) -> Party:
    return Party(public.name, public.verifying, public.sealing)


def answer_stored(settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Answer the batch of a round, in a store that this process opens itself."""
    return answer(_store(settings.store_url), settings, digest, fence)


def answer(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Open, compute, seal, and keep the bulletin; how it ended.

    Seals are fresh at every try, so the bulletin that was kept first is the one that counts.
    """
    sitting = next(one for one in store.rounds() if one.digest == digest)
    if sitting.phase != "batched":
        return sitting.outcome
    paths = _paths(settings)
    round_ = settle(read_signed(sitting.signed))
    lanes = Lanes(paths, count=settings.workers)
    keys = _keyring(paths).of(round_.terms.server.verifying)
    server = Server(round_, keys=keys, bulk=lanes, task=task_of(round_.terms.task, settings))
    faults.reach("server.open")
    bulletin = server.answer(store.batch(digest))
    outcome = "answered" if server.phase is Phase.ANSWERED else "refused"
    faults.reach("server.seal")
    store.answer(digest, bulletin, outcome=outcome, fence=fence)
    faults.reach("server.answered")
    return outcome


def task_of(work: Work, settings: ServerSettings) -> tasks.Task:
    """Rebuild the task of the terms with what only this server knows of it."""
    known: dict[str, dict[str, Any]] = {}
    if settings.insight:
        path = settings.path(settings.insight)
        try:
            known = msgspec.json.decode(read_secret(path), type=dict[str, dict[str, Any]])
        except msgspec.MsgspecError as error:
            raise Misuse(f"{path} is no file of task parameters: {error}") from None
    return tasks.from_params({"name": work.name, **work.params, **known.get(work.name, {})})
