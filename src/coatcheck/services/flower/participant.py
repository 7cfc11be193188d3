"""A Flower client that reports its update through coatcheck instead of the SuperLink.

The mod lets the client train as it always does, takes what it would have sent, and hands the
clipped difference to coatcheck: randomized, sealed, shuffled. What Flower gets back is the same
for everybody, silent or not. The ticket is on the disk before the report leaves, so a client that
crashes and is asked again sends the same report. SPEC section 12.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coatcheck.domains import Floats
from coatcheck.errors import Error as OwnError
from coatcheck.errors import Misuse
from coatcheck.protocol.client import Budget, Limit
from coatcheck.protocol.trust import Trust
from coatcheck.services.person.visit import Visit
from coatcheck.tasks.descent import clipped

ROUND: Final = "coatcheck-round"
"""The key of a message's configuration that says where the round is."""
COLLECT: Final = "coatcheck"
"""The action of the query that asks a client for the private mean it has read."""
MEAN: Final = "coatcheck-mean"
_FAILED: Final = 1
_SAID: Final = "this client did not take part; its own log says why"
_log: Final = logging.getLogger("coatcheck.flower")


@dataclass(frozen=True, kw_only=True)
class Participant:
    """What one client decides for itself; nothing here comes from Flower.

    Attributes:
        trusted: the keys that this client knows, from elsewhere than the round.
        limit: the most that a round may cost.
        clip: the longest update that is reported; as long as the ball of the terms.
        folder: where tickets are kept, readable by their owner alone.
        group: the name of the group in the terms.
        ledger: the file of all rounds; None if somebody else keeps count.
        token: gives the token for a round's address where the shuffler admits people by token.
        patience: how many seconds services that are away are asked again.
    """

    trusted: Trust
    limit: Limit
    clip: float
    folder: Path
    group: str = "people"
    ledger: Budget | None = None
    token: Callable[[str], str] | None = None
    patience: float = 120.0

    def join(self, url: str, update: Sequence[Any], *, node: int, dimension: int) -> None:
        """Report an update in a round, or go on with the report that is stored."""
        flat = np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in update])
        value = clipped(flat, dimension=dimension, clip=self.clip)
        asyncio.run(self._join(url, value, node=node))

    async def _join(self, url: str, value: Floats, *, node: int) -> None:
        async with self._visit(url, node=node) as visit:
            await visit.join(
                value.tolist(),
                group=self.group,
                limit=self.limit,
                ledger=self.ledger,
                clamp=True,
                token=self.token(url) if self.token else "",
                patience=self.patience,
            )

    def mean(self, url: str, *, node: int) -> Floats:
        """Read the private mean from this client's own answer."""

        async def read() -> tuple[float, ...]:
            async with self._visit(url, node=node) as visit:
                return (await visit.collect(ledger=self.ledger, patience=self.patience)).shared

        return np.array(asyncio.run(read()), dtype=np.float64)

    def _visit(self, url: str, *, node: int) -> Visit:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{node}-{url.rstrip('/').rpartition('/')[2][:32]}.ticket"
        return Visit(url, path=path, trusted=self.trusted)


def attach(app: ClientApp, participant: Callable[[Context], Participant]) -> Any:
    """Let a client app take part: answers the strategy's query, and returns the mod for `train`."""

    @app.query(COLLECT)  # type: ignore[untyped-decorator,unused-ignore] # flwr is not typed here
    def collect(message: Message, context: Context) -> Message:
        try:
            url = str(message.content["config"][ROUND])
            mean = participant(context).mean(url, node=context.node_id)
        except OwnError as error:
            return _failed(message, error)
        return Message(RecordDict({MEAN: ArrayRecord([mean])}), reply_to=message)

    def private(message: Message, context: Context, call_next: Any) -> Message:
        before = message.content["arrays"].to_numpy_ndarrays()
        config: ConfigRecord = message.content["config"]
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            if ROUND not in config:
                raise Misuse("the strategy names no round: use PrivateMean, or leave the mod out")
            after = reply.content["arrays"].to_numpy_ndarrays()
            shapes = [part.shape for part in before]
            if [part.shape for part in after] != shapes:
                raise Misuse(f"the model has arrays of {shapes}: train it without changing them")
            # Down the slope is a step against the gradient, so the sign is that of a gradient.
            update = [old - new for old, new in zip(before, after, strict=True)]
            size = sum(part.size for part in before)
            participant(context).join(
                str(config[ROUND]), update, node=context.node_id, dimension=size
            )
        except OwnError as error:
            return _failed(message, error)
        # The same for everybody: no metrics, no number of examples.
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return private


def _failed(message: Message, error: OwnError) -> Message:
    """Say that it failed and not why: a sentence about an update would go to Flower."""
    _log.warning("no report: %s", error)
    return Message(Error(_FAILED, _SAID), reply_to=message)
