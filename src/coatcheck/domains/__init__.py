"""Domains of values, and the integer lattice on which their privacy is exact.

After a shift and a scale per axis, every numeric domain is the unit ball of some l_p norm (a box
is that of l_inf). Its lattice is every integer vector i with |i|_p <= N, where N is half the
number of steps along an axis; i stands for the point i/N. Values enter and leave in the user's
units; between, they are integers. This file holds `Categories` and `Product`; `Box` and `Ball` are
in `numeric`. SPEC.md, "The lattice", states the rules.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coatcheck.domains.numeric import STEPS, Ball, Box, Floats, Points, lattice_norm_within
from coatcheck.errors import Misuse, OutsideDomain

__all__ = [
    "STEPS",
    "Ball",
    "Box",
    "Categories",
    "Domain",
    "Floats",
    "Points",
    "Product",
    "domain_from_params",
    "lattice_norm_within",
    "side_by_side",
]


@dataclass(frozen=True)
class Categories:
    """Named choices without an order; a lattice point is the position of a label."""

    labels: tuple[str, ...]
    dimension: ClassVar[int] = 1  # a lattice point is one integer
    unit: ClassVar[str] = ""  # errors are a share of wrong labels

    def __post_init__(self) -> None:
        labels = tuple(self.labels)
        if isinstance(self.labels, str) or not all(isinstance(label, str) for label in labels):
            raise Misuse(f"`labels` must be a list of texts, not {self.labels!r}")
        if not labels:
            raise Misuse("`labels` must hold at least one label")
        if len(set(labels)) != len(labels):
            raise Misuse(f"`labels` must not repeat a label, got {list(labels)}")
        object.__setattr__(self, "labels", labels)

    def snap(self, values: Sequence[str], *, clamp: bool = False) -> Points:  # noqa: ARG002 - no label lies near another
        """Return the position of each label; an unknown label is an error, also with `clamp`."""
        if isinstance(values, str):
            raise Misuse("`values` must be a list of labels, not one text")
        position = {label: place for place, label in enumerate(self.labels)}
        for row, label in enumerate(values):
            if label not in position:
                raise OutsideDomain(f"value {row}: {label!r} is not one of {list(self.labels)}")
        positions = [position[label] for label in values]
        return np.array(positions, dtype=np.int64).reshape(-1, 1)

    def holds(self, points: Points) -> bool:
        """Return whether every point is the position of a label."""
        return points.size == 0 or bool(0 <= points.min() and points.max() < len(self.labels))

    def snap_one(self, value: str) -> tuple[int, ...]:
        """Return the position of one label."""
        return (int(self.snap([value])[0, 0]),)

    def values(self, points: Points) -> NDArray[np.str_]:
        """Return the labels at these positions."""
        return np.array(self.labels)[np.asarray(points).reshape(-1)]

    def params(self) -> dict[str, Any]:
        """Return plain data from which `domain_from_params` builds equal categories."""
        return {"kind": "categories", "labels": list(self.labels)}


Simple = Box | Ball | Categories


@dataclass(frozen=True)
class Product:
    """Several fields of one person, such as a place and a preference, that share a budget.

    Values are a mapping from field to the values of that field; a lattice point is the points of
    all fields, concatenated.
    """

    fields: Mapping[str, Simple]
    shares: Mapping[str, float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        fields = dict(self.fields)
        shares = dict(self.shares or dict.fromkeys(fields, 1.0))
        if not fields:
            raise Misuse("`fields` must hold at least one field")
        if fields.keys() != shares.keys():
            raise Misuse(f"`shares` must name the fields {list(fields)}, got {list(shares)}")
        for share in shares.values():
            if not (math.isfinite(share) and share > 0) or isinstance(share, bool):
                raise Misuse(f"each of `shares` must be a number above 0, got {shares}")
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "shares", shares)

    def __hash__(self) -> int:
        return hash((tuple(self.fields.items()), tuple(self._weights().items())))

    def _weights(self) -> dict[str, float]:
        return dict(self.shares or {})

    @property
    def dimension(self) -> int:
        """Return the number of integers in a lattice point, over all fields."""
        return sum(part.dimension for part in self.fields.values())

    @property
    def columns(self) -> dict[str, slice]:
        """Return the integers of a lattice point that belong to each field."""
        return side_by_side({name: part.dimension for name, part in self.fields.items()})

    def split(self, epsilon: float) -> dict[str, float]:
        """Return each field's part of a budget; the parts never exceed it together."""
        weights = self._weights()
        total = sum(map(Fraction, weights.values()))
        parts = {}
        for name, weight in weights.items():
            exact = Fraction(epsilon) * Fraction(weight) / total
            part = float(exact)
            parts[name] = part if Fraction(part) <= exact else math.nextafter(part, 0.0)
        return parts

    def snap(self, values: Mapping[str, Any], *, clamp: bool = False) -> Points:
        """Return the lattice points of columns of values, one column per field."""
        if values.keys() != self.fields.keys():
            raise Misuse(f"`values` must have the fields {list(self.fields)}, got {list(values)}")
        parts = [part.snap(values[name], clamp=clamp) for name, part in self.fields.items()]
        if len({len(part) for part in parts}) != 1:
            raise Misuse(
                f"all fields must have equally many values, got {[len(part) for part in parts]}"
            )
        return np.concatenate(parts, axis=1)

    def holds(self, points: Points) -> bool:
        """Return whether every field of every point is on its lattice."""
        columns = self.columns
        return all(part.holds(points[:, columns[name]]) for name, part in self.fields.items())

    def values(self, points: Points) -> dict[str, Any]:
        """Return lattice points as columns of values, one column per field."""
        columns = self.columns
        return {name: part.values(points[:, columns[name]]) for name, part in self.fields.items()}

    def params(self) -> dict[str, Any]:
        """Return plain data from which `domain_from_params` builds an equal product."""
        fields = {name: part.params() for name, part in self.fields.items()}
        return {"kind": "product", "fields": fields, "shares": self._weights()}


Domain = Box | Ball | Categories | Product


def side_by_side(widths: Mapping[str, int]) -> dict[str, slice]:
    """Return the columns of each field if fields of these widths are concatenated."""
    ends = np.cumsum(list(widths.values())).tolist()
    starts = [0, *ends[:-1]]
    return {name: slice(a, b) for name, a, b in zip(widths, starts, ends, strict=True)}


def domain_from_params(params: Mapping[str, Any]) -> Domain:
    """Return the domain that `params()` described; reject unknown and missing keys."""
    kinds = {"box": Box, "ball": Ball, "categories": Categories, "product": Product}
    args = dict(params)
    kind = args.pop("kind", None)
    if kind not in kinds:
        raise Misuse(f"the `kind` of a domain must be one of {sorted(kinds)}, got {kind!r}")
    if kind == "ball" and args.get("p") == "inf":
        args["p"] = math.inf
    if kind == "product":
        fields = args.get("fields", {})
        args["fields"] = {name: domain_from_params(part) for name, part in fields.items()}
    try:
        domain: Domain = kinds[kind](**args)
    except TypeError as error:
        raise Misuse(f"a {kind} cannot be built from {sorted(args)}: {error}") from error
    return domain
