"""Download: the shuffled list itself is the answer, and everybody computes at home.

This is the paper's decentralized case, f(x) = x. It needs a public f and exposes everybody to
everybody: an adversary that colludes with one person holds all addresses and estimates. The stated
exposure says so, and the accountant then counts no crowd but the shuffler's. Paper, Discussions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coatcheck.errors import Misuse, Refused
from coatcheck.tasks.contract import Answers, AnswerSize, Floats, References


@dataclass(frozen=True, kw_only=True)
class Download:
    """Answer everybody with every report: its address and its estimate.

    Attributes:
        most: the largest crowd of this round. Every answer has room for as many reports, so all
            answers of the round together grow with its square.
    """

    most: int = 1000
    groups: tuple[str] = ("people",)

    name = "download"

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.most < 1:
            raise Misuse(f"`most` must be at least 1, got {self.most}")
        if len(self.groups) != 1:
            raise Misuse(f"`groups` must name one group, got {self.groups}")

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Return the list, for everybody, in the order of its content."""
        (group,) = estimates
        n = len(group)
        if n > self.most:
            raise Refused(
                f"the round has {n} reports, but its answers hold {self.most}; a shortened list "
                "would leave people out, so no answer is released: raise `most`"
            )
        order = np.lexsort(group.T[::-1]) if n else np.empty(0, dtype=np.int64)
        return [References(0, np.arange(n + 1) * n, np.tile(order, n), located=True)]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the number of everybody else: an answer names the whole crowd."""
        return ((max(0, sizes[0] - 1),),)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Return the size of the whole list, with its estimates."""
        return (AnswerSize(references=self.most, numbers=self.most * dimensions[0]),)

    def params(self) -> dict[str, object]:
        """Return the parameters for the terms."""
        return {"name": self.name, "most": self.most, "groups": list(self.groups)}
