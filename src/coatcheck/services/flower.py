"""Flower with private updates: clients report through coatcheck, and Flower carries the model.

A `Participant` is the client's side. Its mod lets the client train as usual, takes what the client
would have sent, and hands the clipped difference to coatcheck, which randomizes, seals and shuffles
it. Flower gets the same reply from everybody. The ticket is on the disk before the report leaves,
so a client that crashes sends the same report again (SPEC section 12).

`PrivateMean` is the strategy, which never sees an update. For each of Flower's rounds it opens a
round of coatcheck and sends its address to the clients. When they have reported, it asks a few of
them for the mean in their answers, takes the one that most of them return, and moves the model by
`Descent`. A round that fails leaves the model as it was.

What Flower still sees is in docs/how-to/use-with-flower.md.
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
from coatcheck.errors import Error as CoatcheckError
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
        f"{error.name} is missing; private updates need the extra `flower`: pip install"
        " 'coatcheck[flower]'"
    ) from None

__all__ = ["Organiser", "Participant", "PrivateMean", "attach"]

ROUND: Final = "coatcheck-round"
"""The key of the round's address in a message's configuration."""
COLLECT: Final = "coatcheck"
"""The action of the query for the private mean in a client's answer."""
MEAN: Final = "coatcheck-mean"
_FAILED: Final = 1
_REASON: Final = "this client did not take part; its log says why"
_log: Final = logging.getLogger("coatcheck.flower")


@dataclass(frozen=True, kw_only=True)
class Participant:
    """The choices of one client; nothing here comes from Flower.

    Attributes:
        trusted: the keys that this client trusts; it gets them from elsewhere than the round.
        limit: the most that a round may cost.
        clip: the norm to which updates are clipped; the radius of the ball in the terms.
        folder: where tickets are stored, readable by their owner only.
        group: the name of the group in the terms.
        ledger: the ledger of all rounds; None if the client keeps count elsewhere.
        token: returns the token for a round's address, if the shuffler admits people by token.
        patience: seconds for which requests to services that do not answer are repeated.
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
        """Report an update in a round, or continue with the stored report."""
        flat = np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in update])
        value = clipped(flat, dimension=dimension, clip=self.clip)
        asyncio.run(self._join(url, value, node=node))

    async def _join(self, url: str, value: Floats, *, node: int) -> None:
        async with self._session(url, node=node) as session:
            await session.join(
                value.tolist(),
                group=self.group,
                limit=self.limit,
                ledger=self.ledger,
                clamp=True,
                token=self.token(url) if self.token else "",
                patience=self.patience,
            )

    def mean(self, url: str, *, node: int) -> Floats:
        """Return the private mean from this client's answer."""

        async def read() -> tuple[float, ...]:
            async with self._session(url, node=node) as session:
                return (await session.collect(ledger=self.ledger, patience=self.patience)).shared

        return np.array(asyncio.run(read()), dtype=np.float64)

    def _session(self, url: str, *, node: int) -> Session:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{node}-{url.rstrip('/').rpartition('/')[2][:32]}.ticket"
        return Session(url, path=path, trusted=self.trusted)


def attach(app: ClientApp, participant: Callable[[Context], Participant]) -> Any:
    """Let a client app take part: answer the strategy's query, and return the mod for `train`."""

    @app.query(COLLECT)  # type: ignore[untyped-decorator,unused-ignore] # flwr is not typed here
    def collect(message: Message, context: Context) -> Message:
        try:
            url = str(message.content["config"][ROUND])
            mean = participant(context).mean(url, node=context.node_id)
        except CoatcheckError as error:
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
                raise Misuse("the strategy sent no round; use `PrivateMean`, or remove the mod")
            after = reply.content["arrays"].to_numpy_ndarrays()
            shapes = [part.shape for part in before]
            if [part.shape for part in after] != shapes:
                raise Misuse(f"training must keep the shapes of the arrays, which were {shapes}")
            # A step goes against the gradient, so this difference has the sign of a gradient.
            update = [old - new for old, new in zip(before, after, strict=True)]
            size = sum(part.size for part in before)
            participant(context).join(
                str(config[ROUND]), update, node=context.node_id, dimension=size
            )
        except CoatcheckError as error:
            return _failed(message, error)
        # The same reply for everybody: no metrics, no number of examples.
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return private


def _failed(message: Message, error: CoatcheckError) -> Message:
    """Reply that the client failed, without the reason, which could be about the update."""
    _log.warning("no report: %s", error)
    return Message(Error(_FAILED, _REASON), reply_to=message)


@dataclass(frozen=True, kw_only=True)
class Organiser:
    """Opens rounds at a coatcheck server.

    Attributes:
        server: the server's address.
        token: the token that its operator gave for opening rounds.
        draft: a draft of terms without the name of the round.
        closes: seconds after which a round with enough reports closes.
        expires: seconds after which a round is abandoned.
    """

    server: str
    token: str
    draft: Mapping[str, Any]
    closes: int = 60
    expires: int = 3600

    @classmethod
    def of(
        cls, plan: Plan, *, dimension: int, server: str, token: str, **times: int
    ) -> "Organiser":
        """Return an organiser for a plan of whole updates with `dimension` parameters each."""
        (group,) = plan.groups
        task = Learning(dimension=dimension, share_mean=True, rewards=False, groups=(group.name,))
        draft = {"task": task.params(), "groups": [group.params()]}
        return cls(server=server, token=token, draft=draft, **times)

    def open(self, name: str) -> str:
        """Open a round and return its address for people."""
        body = {"draft": {**self.draft, "round": name}}
        body |= {"closes": self.closes, "expires": self.expires}  # type: ignore[dict-item] # JSON
        return open_round(self.server, body, token=self.token)


class PrivateMean(FedAvg):  # type: ignore[misc] # flwr is not typed here
    """A strategy that follows the private mean of the clients' updates.

    Args:
        organiser: opens the rounds.
        descent: how the model moves; a step of 1 without momentum is plain averaging.
        clients: the number of clients. Each round asks all of them, and their participation coins
            decide which ones report.
        name: the name of the rounds, to which their number is added.
        readers: the number of clients that the strategy asks for the mean; a majority must agree.
        timeout: the seconds within which they must answer.
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
            raise Misuse(f"`readers` must be at least 1, got {readers}")
        self._organiser, self._descent, self._name = organiser, descent, name
        self._readers, self._timeout = readers, timeout
        self._model: Model | None = None
        self._shapes: list[tuple[int, ...]] = []
        self._grid: Any = None
        self._url = ""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Open a round of coatcheck and send its address to every client."""
        parts = arrays.to_numpy_ndarrays()
        self._shapes, self._grid = [part.shape for part in parts], grid
        if self._model is None:
            self._model = self._descent.start(np.concatenate([part.ravel() for part in parts]))
        self._url = self._organiser.open(f"{self._name} {server_round}")
        config[ROUND] = self._url
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Move the model by the private mean; without one it stays as it was."""
        nodes = [reply.metadata.src_node_id for reply in replies if not reply.has_error()]
        model = self._model
        if model is None:
            raise Misuse("call `configure_train` before `aggregate_train`")
        mean = self._mean(nodes)
        if mean is None:
            _log.warning("round %d failed: the model stays as it was", server_round)
        else:
            self._model = model = model.after(mean)
        metrics = MetricRecord({"reported": len(nodes), "followed": int(mean is not None)})
        return ArrayRecord(self._parts(model.parameters)), metrics

    def _mean(self, nodes: list[int]) -> Floats | None:
        """Return the mean in the answers of a majority of a few clients; None without one."""
        readers = nodes[: self._readers]
        content = RecordDict({"config": ConfigRecord({ROUND: self._url})})
        messages = [
            Message(content=content, message_type=f"query.{COLLECT}", dst_node_id=node)
            for node in readers
        ]
        replies = self._grid.send_and_receive(messages, timeout=self._timeout) if readers else ()
        means: Counter[bytes] = Counter()
        for reply in replies:
            if not reply.has_error() and MEAN in reply.content:
                (mean,) = reply.content[MEAN].to_numpy_ndarrays()
                means[np.asarray(mean, dtype=np.float64).tobytes()] += 1
        ((raw, votes),) = means.most_common(1) or [(b"", 0)]
        if 2 * votes <= len(readers):
            return None
        mean = np.frombuffer(raw, dtype=np.float64)
        fits = mean.size == sum(int(np.prod(shape)) for shape in self._shapes)
        return mean if fits and np.all(np.isfinite(mean)) else None

    def _parts(self, flat: Floats) -> list[Any]:
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]
