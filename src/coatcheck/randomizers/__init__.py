"""FAMILY: local randomizers; a mechanism is added by a file here and a line in `REGISTRY`."""

from coatcheck.randomizers.bounded import BoundedResponse
from coatcheck.randomizers.contract import Choice, Decode, Goal, Randomizer, Reports
from coatcheck.randomizers.grid import GridResponse
from coatcheck.randomizers.minkowski import MinkowskiResponse

__all__ = [
    "BoundedResponse",
    "Choice",
    "Decode",
    "Goal",
    "GridResponse",
    "MinkowskiResponse",
    "Randomizer",
    "Reports",
]
