"""Download, then compute: the answer is the shuffled list itself, and everybody computes at home.

The paper's decentralized case, f(x) = x. It needs a public f and exposes everybody to everybody:
whoever colludes with one person holds all addresses and estimates. The exposure says so, and the
accountant then counts no crowd but the shuffler's. Sees places, never keys. Paper, Discussions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coatcheck.errors import Misuse, Refused
from coatcheck.tasks.contract import Answers, AnswerSize, Floats, References


@dataclass(frozen=True, kw_only=True)
class Download:
    """Tell everybody of every report: its address and its estimate.

    Attributes:
        most: the largest crowd of this round; every answer has room for so many reports, so the
            round's answers together grow with its square.
    """

    most: int = 1000
    groups: tuple[str] = ("people",)

    name = "download"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.most < 1 or len(self.groups) != 1:
            raise Misuse("download needs one group and a crowd of at least 1")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """The list, for everybody, in the order of its content."""
        (group,) = estimates
        n = len(group)
        if n > self.most:
            raise Refused(
                f"{n} reports, but the answers of this round hold {self.most}; "
                "a shortened list would leave people out, so none was given: raise `most`"
            )
        order = np.lexsort(group.T[::-1]) if n else np.empty(0, dtype=np.int64)
        return [References(0, np.arange(n + 1) * n, np.tile(order, n), located=True)]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Everybody else."""
        return ((max(0, sizes[0] - 1),),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Room for the whole list, with its estimates."""
        return (AnswerSize(references=self.most, numbers=self.most * dimensions[0]),)

    def params(self) -> dict[str, object]:
        """Parameters for the terms."""
        return {"name": self.name, "most": self.most, "groups": list(self.groups)}
