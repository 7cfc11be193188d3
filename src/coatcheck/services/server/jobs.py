"""What a server computes, in its worker: the numbers of terms, and the answers to a batch.

The service's own process names these jobs and does none of them. So what computes is loaded when a
job begins: loading it takes longer than everything else of a start.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from coatcheck.errors import Forgotten, Misuse
from coatcheck.protocol.agreement import propose, read_signed, settle, write_signed
from coatcheck.protocol.ends import OPERATOR, unheard
from coatcheck.protocol.room import check_room
from coatcheck.protocol.server_moves import MOVES
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import Notary, ShufflerParty, Terms, read_terms
from coatcheck.services import faults
from coatcheck.services.keyring import keyring_of
from coatcheck.services.settings import ServerSettings
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
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - slow to load

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
            from coatcheck.services.server.learned import placed  # noqa: PLC0415 - as above

            better = made(placed(plan, density))
            pairs = zip(better.groups, terms.groups, strict=True)
            if all(one.promise.epsilon <= other.promise.epsilon for one, other in pairs):
                terms = better
        signed = propose(terms, keys=keys.current)
    except msgspec.MsgspecError as error:
        raise Misuse(f"the plan makes no terms: {error}") from None
    check_room(read_terms(signed.document.encode()), limit=settings.batch_limit)
    return write_signed(signed)


def answer(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Open, compute, seal, and keep the bulletin; how it ended.

    Seals are fresh at every try, so the part that was noted first is the one that counts.
    """
    from coatcheck.services.server.answering import Answering, End  # noqa: PLC0415 - slow to load

    stored = store.round(digest)
    if not MOVES.allows(stored.phase, "answer"):
        return stored.outcome  # a try before this one did it
    round_ = settle(read_signed(stored.signed))
    faults.reach("server.open")
    try:
        end = Answering(store, settings, stored, fence).make()
    except Forgotten:
        keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
        end = End("lose", unheard(round_, sign=keys.signing.sign, reason=OPERATOR))
    faults.reach("server.seal")
    outcome = store.answer(
        digest, end.move, end.heading, parts=end.parts, density=end.density, fence=fence
    )
    faults.reach("server.answered")
    return outcome


def refuse(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """End a round that was not answered in time, whatever kept its task from it."""
    from coatcheck.protocol.server import refusal  # noqa: PLC0415 - slow to load

    stored = store.round(digest)
    round_ = settle(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    try:
        move, bulletin = "refuse", refusal(store.kept(digest, "incoming"), round_=round_, keys=keys)
    except Forgotten:
        move, bulletin = "lose", unheard(round_, sign=keys.signing.sign, reason=OPERATOR)
    return store.answer(digest, move, bulletin, fence=fence)
