"""What a server computes, in its worker: the numbers of terms, and the answers to a batch."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from coatcheck import tasks
from coatcheck.errors import Forgotten, Misuse, Refused
from coatcheck.protocol.agreement import propose, read_signed, settle, write_signed
from coatcheck.protocol.drafting import read_draft
from coatcheck.protocol.ends import OPERATOR
from coatcheck.protocol.keyfiles import read_secret
from coatcheck.protocol.records import read_document
from coatcheck.protocol.server import Server, refusal, unheard
from coatcheck.protocol.server_moves import MOVES, Phase, ServerState
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import Notary, ShufflerParty, Terms, Work
from coatcheck.services import faults
from coatcheck.services.batches import joined
from coatcheck.services.keyring import keyring_of
from coatcheck.services.log import log, place_of
from coatcheck.services.server.learned import learned, placed
from coatcheck.services.settings import ServerSettings
from coatcheck.services.workers import Lanes
from coatcheck.stores.server import ServerStore


def draft(
    settings: ServerSettings,
    plan: dict[str, Any],
    times: tuple[int, int, int],
    *,
    url: str,
    shufflers: Sequence[ShufflerParty],
    board: Notary,
    density: bytes = b"",
) -> bytes:
    """Compute a plan's sizes and promises and sign it as the server.

    Where a density of people is known, mechanisms are placed for it, unless that promises less.
    """
    keys = keyring_of(settings.key_files)

    def made(plan: dict[str, Any]) -> Terms:
        return read_draft(plan).terms(
            suite=suite_named(keys.public.suite),
            server=replace(keys.public, url=url).party,
            shufflers=shufflers,
            board=board,
            times=times,
        )

    try:
        terms = made(plan)
        if density:
            better = made(placed(plan, density))
            pairs = zip(better.groups, terms.groups, strict=True)
            if all(one.promise.epsilon <= other.promise.epsilon for one, other in pairs):
                terms = better
        return write_signed(propose(terms, keys=keys.current))
    except msgspec.MsgspecError as error:
        raise Misuse(f"the plan makes no terms: {error}") from None


def answer(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Open, compute, seal, and keep the bulletin; how it ended.

    Seals are fresh at every try, so the bulletin that was kept first is the one that counts.
    """
    stored = store.round(digest)
    if not MOVES.allows(stored.phase, "answer"):
        return stored.outcome  # a try before this one did it
    round_ = settle(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    move = "refuse"
    try:
        raw = joined(store, round_, store.kept(digest, "incoming"))
    except Forgotten:
        bulletin = unheard(round_, keys=keys, reason=OPERATOR)
        return store.answer(digest, "abandon", bulletin, fence=fence)
    try:
        state = ServerState(stored.phase, stored.accepted)
        task, lanes = task_of(round_.terms.task, settings), Lanes(settings)
        server = Server(round_, keys=keys, state=state, task=task, bulk=lanes)
        faults.reach("server.open")
        bulletin = server.answer(raw)
        move = "answer" if server.phase is Phase.ANSWERED else "refuse"
    except Refused as error:
        # What the task refuses it refuses again. Everything else may pass, or be mended, until
        # the round's time is over.
        # By kind and line: a task's message may quote a report.
        log.error("round %s is refused: %s", round_.terms.round, place_of(error))
        bulletin = refusal(raw, round_=round_, keys=keys)
    faults.reach("server.seal")
    density = b""
    if move == "answer" and settings.schedule and settings.schedule.learn:
        density = _learned(server)
    outcome = store.answer(digest, move, bulletin, density=density, fence=fence)
    faults.reach("server.answered")
    return outcome


def _learned(server: Server) -> bytes:
    """Learn where people are; whatever goes wrong, the round is answered."""
    try:
        return learned(server)
    except Exception as error:  # noqa: BLE001 - people wait for their answers
        log.error("nothing was learned of where people are: %s", place_of(error))
        return b""


def refuse(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """End a round that was not answered in time, whatever kept its task from it."""
    stored = store.round(digest)
    round_ = settle(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    try:
        move, bulletin = "refuse", refusal(store.kept(digest, "incoming"), round_=round_, keys=keys)
    except Forgotten:
        move, bulletin = "abandon", unheard(round_, keys=keys, reason=OPERATOR)
    return store.answer(digest, move, bulletin, fence=fence)


def task_of(work: Work, settings: ServerSettings) -> tasks.Task:
    """Rebuild the task of the terms with what only this server knows of it.

    Whatever is wrong is `Misuse`: files are the operator's to mend.
    """
    known: dict[str, dict[str, Any]] = {}
    try:
        if settings.insight:
            path, kind = settings.path(settings.insight), dict[str, dict[str, Any]]
            known = read_document(read_secret(path), kind, f"{path} is no file of task parameters")
        return tasks.from_params({"name": work.name, **work.params, **known.get(work.name, {})})
    except Refused as refused:
        raise Misuse(str(refused)) from None
