"""A Flower strategy that never sees an update: it reads the private mean and moves the model.

For each of Flower's rounds it opens a round of coatcheck and names it to the clients. When they
have reported, it asks a few of them for the mean that their own answers hold, takes what most of
them say, and follows it by `Descent`. A round that fails leaves the model as it was.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from coatcheck.domains import Floats
from coatcheck.errors import Error as OwnError
from coatcheck.errors import Misuse
from coatcheck.planning import Plan
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.client import Budget, Limit
from coatcheck.services.person.session import Session
from coatcheck.services.web.client import open_round
from coatcheck.tasks.learning import Descent, Learning, Model, clipped

try:
    from flwr.app import (
        ArrayRecord,
        ConfigRecord,
        Context,
        Error,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
except ModuleNotFoundError as error:  # pragma: no cover - an extra
    raise Misuse(
        f"{error.name} is missing: private updates need Flower, pip install 'coatcheck[flower]'"
    ) from None

# HOUSE-DOC services.flower.participant: 'A Flower client that reports its update through coatcheck instead of the SuperLink.\n\nThe mod lets the client train as it always does, takes what it would have sent, and hands the\nclipped difference to coatcheck: randomized, sealed, shuffled. What Flower gets back is the same\nfor everybody, silent or not. The ticket is on the disk before the report leaves, so a client that\ncrashes and is asked again sends the same report. SPEC section 12.\n'
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

    def _visit(self, url: str, *, node: int) -> Session:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{node}-{url.rstrip('/').rpartition('/')[2][:32]}.ticket"
        return Session(url, path=path, trusted=self.trusted)


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


@dataclass(frozen=True, kw_only=True)
class Organiser:
    """Who opens rounds at a coatcheck server.

    Attributes:
        server: the server's address.
        token: what its operator gave to whoever may open rounds.
        draft: a draft without the name of the round.
        closes: seconds after which a round with enough reports closes.
        expires: seconds after which a round is given up.
    """

    server: str
    token: str
    draft: Mapping[str, Any]
    closes: int = 60
    expires: int = 3600

    @classmethod
    def of(
        cls, made: Plan, *, dimension: int, server: str, token: str, **times: int
    ) -> "Organiser":
        """Make one from a plan of whole updates for a model with so many parameters."""
        (group,) = made.groups
        task = Learning(dimension=dimension, share_mean=True, rewards=False, groups=(group.name,))
        draft = {"task": task.params(), "groups": [group.params()]}
        return cls(server=server, token=token, draft=draft, **times)

    def open(self, name: str) -> str:
        """Open a round and return its address for people."""
        body = {"draft": {**self.draft, "round": name}}
        body |= {"closes": self.closes, "expires": self.expires}  # type: ignore[dict-item] # JSON
        return open_round(self.server, body, token=self.token)


class PrivateMean(FedAvg):  # type: ignore[misc] # flwr is not typed here
    """Follow the private mean of the clients' updates.

    Args:
        organiser: who opens the rounds.
        descent: how the model moves; a step of 1 without momentum is plain averaging.
        clients: how many there are; all are asked in each round, for each tosses its own coin.
        name: what the rounds are called, with their number.
        readers: how many clients are asked for the mean; most of them have to say the same.
        timeout: how many seconds their answers may take.
    """

    def __init__(
        self,
        *,
        organiser: Organiser,
        descent: Descent,
        clients: int,
        name: str = "flower",
        readers: int = 3,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        if readers < 1:
            raise Misuse(f"at least 1 client reads the mean, not {readers}")
        self._organiser, self._descent, self._name = organiser, descent, name
        self._readers, self._timeout = readers, timeout
        self._model: Model | None = None
        self._shapes: list[tuple[int, ...]] = []
        self._grid: Any = None
        self._url = ""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Open a round of coatcheck and name it to every client."""
        parts = arrays.to_numpy_ndarrays()
        self._shapes, self._grid = [part.shape for part in parts], grid
        if self._model is None:
            self._model = self._descent.start(np.concatenate([part.ravel() for part in parts]))
        self._url = self._organiser.open(f"{self._name} {server_round}")
        config[ROUND] = self._url
        found: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return found

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Move the model by the private mean; without one it stays as it was."""
        there = [reply.metadata.src_node_id for reply in replies if not reply.has_error()]
        model = self._model
        if model is None:
            raise Misuse("no round was configured before this one was aggregated")
        mean = self._mean(there)
        if mean is None:
            _log.warning("round %d failed: the model stays as it was", server_round)
        else:
            self._model = model = model.after(mean)
        told = MetricRecord({"reported": len(there), "followed": int(mean is not None)})
        return ArrayRecord(self._parts(model.parameters)), told

    def _mean(self, there: list[int]) -> Floats | None:
        """Ask a few clients for the mean; what most of those asked have read is taken."""
        asked = there[: self._readers]
        content = RecordDict({"config": ConfigRecord({ROUND: self._url})})
        messages = [
            Message(content=content, message_type=f"query.{COLLECT}", dst_node_id=node)
            for node in asked
        ]
        replies = self._grid.send_and_receive(messages, timeout=self._timeout) if asked else ()
        read: Counter[bytes] = Counter()
        for reply in replies:
            if not reply.has_error() and MEAN in reply.content:
                (mean,) = reply.content[MEAN].to_numpy_ndarrays()
                read[np.asarray(mean, dtype=np.float64).tobytes()] += 1
        ((raw, votes),) = read.most_common(1) or [(b"", 0)]
        if 2 * votes <= len(asked):
            return None
        found = np.frombuffer(raw, dtype=np.float64)
        fits = found.size == sum(int(np.prod(shape)) for shape in self._shapes)
        return found if fits and np.all(np.isfinite(found)) else None

    def _parts(self, flat: Floats) -> list[Any]:
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        cut = np.split(flat, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(cut, self._shapes, strict=True)]


# HOUSE-DOC services.flower: "Flower with private updates: clients report through coatcheck, and Flower carries the model.\n\nA `Participant` is a client's side: its mod hands the update to coatcheck's shuffler, and Flower\ngets a reply that is the same whatever the update was. `PrivateMean` is the strategy: it opens a\nround, waits for the private mean, moves the model and publishes the next one. What Flower still\nsees is in docs/how-to/use-with-flower.md.\n"
__all__ = ["Organiser", "Participant", "PrivateMean", "attach"]
