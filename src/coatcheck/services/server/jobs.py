"""What a server computes, in its worker: the numbers of terms, and the answers to a batch."""

from concurrent.futures import BrokenExecutor
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from coatcheck import tasks
from coatcheck.errors import Fenced, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import propose, read_signed, settle, write_signed
from coatcheck.protocol.drafting import read_draft
from coatcheck.protocol.keyfiles import PublicKeys, read_secret
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.notices import REFUSED, Bulletin
from coatcheck.protocol.parcels import Batch
from coatcheck.protocol.server import Phase, Server
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import Round, Work
from coatcheck.services import faults
from coatcheck.services.keyring import Keyring
from coatcheck.services.log import log, place_of
from coatcheck.services.settings import ServerSettings
from coatcheck.services.workers import Lanes
from coatcheck.stores import ServerStore, server_store


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
    try:
        terms = read_draft(plan).terms(
            suite=suite_named(keys.public.suite),
            server=keys.public.party,
            shufflers=[public.party for public in shufflers],
            board=board.notary,
            times=times,
        )
        return write_signed(propose(terms, keys=keys.current))
    except msgspec.MsgspecError as error:
        raise Misuse(f"the plan makes no terms: {error}") from None


def answer_stored(settings: ServerSettings, digest: bytes, fence: int, now: int) -> str:
    """Answer the batch of a round, in a store that this process opens itself."""
    return answer(_store(settings.store_url), settings, digest, fence, now)


def answer(
    store: ServerStore, settings: ServerSettings, digest: bytes, fence: int, now: int
) -> str:
    """Open, compute, seal, and keep the bulletin; how it ended.

    Seals are fresh at every try, so the bulletin that was kept first is the one that counts.
    """
    sitting = next(one for one in store.rounds() if one.digest == digest)
    if sitting.phase != "batched":
        return sitting.outcome
    round_ = settle(read_signed(sitting.signed))
    keys = _keyring(_paths(settings)).of(round_.terms.server.verifying)
    raw = store.batch(digest)
    try:
        bulletin, outcome = _answered(raw, round_, keys, settings)
    except Exception as error:
        if not _is_for_good(error, over=now >= round_.terms.expires):
            raise
        # By kind and line: a task's message may quote a report.
        log.error("round %s is refused: %s", round_.terms.round, place_of(error))
        bulletin, outcome = _refusal(raw, round_, keys), "refused"
    faults.reach("server.seal")
    store.answer(digest, bulletin, outcome=outcome, fence=fence)
    faults.reach("server.answered")
    return outcome


def _answered(
    raw: bytes, round_: Round, keys: KeyPairs, settings: ServerSettings
) -> tuple[bytes, str]:
    lanes = Lanes(_paths(settings), count=settings.workers)
    try:
        task = task_of(round_.terms.task, settings)
    except Refused as refused:
        raise Misuse(str(refused)) from None  # a file, which is the operator's to mend
    server = Server(round_, keys=keys, bulk=lanes, task=task)
    faults.reach("server.open")
    bulletin = server.answer(raw)
    return bulletin, "answered" if server.phase is Phase.ANSWERED else "refused"


def _is_for_good(error: Exception, *, over: bool) -> bool:
    """Tell whether no later try can help.

    What the task refuses it refuses again. What is ours to mend (a file, a bug) has time until the
    round expires; bad luck (no memory, a worker that died) may pass at any time.
    """
    if isinstance(error, Unavailable | Fenced | MemoryError | OSError | BrokenExecutor):
        return False
    return over or isinstance(error, Refused)


def _refusal(raw: bytes, round_: Round, keys: KeyPairs) -> bytes:
    """Write the bulletin of a round that its task cannot answer, so that people are told."""
    tallies = Batch.decode(raw, round_).tallies
    draft = Bulletin.compose(
        [[] for _ in tallies], outcome=REFUSED, digest=round_.digest, tallies=tallies
    )
    return draft.signed(keys.signing.sign(draft.heading.signed_part())).encode()


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
