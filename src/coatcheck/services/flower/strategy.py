"""A Flower strategy that never sees an update: it reads the private mean and moves the model.

For each of Flower's rounds it opens a round of coatcheck and names it to the clients. When they
have reported, it asks a few of them for the mean that their own answers hold, takes what most of
them say, and follows it by `Descent`. A round that fails leaves the model as it was.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from coatcheck.domains import Floats
from coatcheck.errors import Misuse
from coatcheck.planning import Plan
from coatcheck.services.cluster import open_round
from coatcheck.services.flower.participant import COLLECT, MEAN, ROUND
from coatcheck.tasks.descent import Descent, Model
from coatcheck.tasks.learning import Learning

_log: Final = logging.getLogger("coatcheck.flower")


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
