"""A board service without sockets that shows a round."""

import io
from collections.abc import Sequence

from coatcheck.protocol.agreement import write_signed
from coatcheck.services.board.routes import BoardService
from support.rounds import SmallRound


def show(
    service: BoardService, small: SmallRound, raw: bytes = b"", letters: Sequence[bytes] = ()
) -> None:
    """Log the terms of a round, then show its bulletin and letters, group by group."""
    round_, fence = small.round, service.leadership.fence
    service.store.admit(round_.digest, write_signed(small.signed), fence=fence)
    service.commit([(round_, "terms", b"")])
    if raw:
        heading = service.stage(round_, io.BytesIO(raw))
        service.commit([(round_, "bulletin", heading.encode())])
    for at in range(0, len(letters), 200):
        service.commit([(round_, "letter", one) for one in letters[at : at + 200]])
