"""Every outcome a round can have, as signed headings, for the ledgers of both clients."""

from coatcheck.protocol.log.verification import VerifiedBulletin, verify_bulletin
from coatcheck.protocol.wire.bulletins import ABANDONED, ANSWERED, REFUSED, SERVER, Bulletin
from coatcheck.protocol.wire.uploads import Tally
from support.rounds import SmallRound

SMALL = SmallRound(minimum=40)
ENOUGH, FEW, NONE = Tally(40), Tally(39), Tally(0)

ENDS = {
    "answered": (ANSWERED, 0, SERVER, ENOUGH),
    "below the minimum": (ANSWERED, 0, SERVER, FEW),  # contradicts itself
    "another reason": (ANSWERED, 3, SERVER, ENOUGH),  # the same
    "refused for too few": (REFUSED, 1, SERVER, FEW),
    "refused by the task": (REFUSED, 3, SERVER, ENOUGH),
    "abandoned by the shuffler": (ABANDONED, 1, 0, NONE),
    "abandoned by the server": (ABANDONED, 4, SERVER, NONE),
    "abandoned with counts": (ABANDONED, 4, SERVER, ENOUGH),  # contradicts itself
}


def shown(kind: str) -> VerifiedBulletin:
    """Return an outcome signed by the right party; its entries belong to nobody."""
    outcome, reason, who, tally = ENDS[kind]
    size = SMALL.round.entry_size(0)
    count = tally.kept if outcome == ANSWERED else 0
    entries = [[bytes([n]).ljust(size, b"\0") for n in range(count)] for _ in range(2)]
    draft = Bulletin.compose(
        entries,
        outcome,
        SMALL.round.digest,
        (tally, tally),
        [bytes(32)],
        reason=reason,
        signer=who,
    )
    keys = SMALL.roles.server if who == SERVER else SMALL.roles.shufflers[who]
    return verify_bulletin(draft.signed(keys.signing.sign).encode(), SMALL.round)
