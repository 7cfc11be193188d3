"""Private individual computation: hand in a value, get back your own answer, stay one of the crowd.

This file is the table of contents and nothing else. Names are loaded when first used, so that
`import coatcheck` costs what the user uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same table for type checkers; a test keeps the two equal
    from coatcheck.amplification import (
        Guarantee,
        amplify,
        calibrate,
        delta_curve,
    )
    from coatcheck.comparison import (
        compare,
    )
    from coatcheck.composition import (
        compose,
    )
    from coatcheck.domain import (
        Ball,
        Box,
        Categories,
        Product,
    )
    from coatcheck.entropy import (
        seeded,
        system,
    )
    from coatcheck.errors import (
        Error,
        Misuse,
        OutsideDomain,
        Refused,
    )
    from coatcheck.ledger import (
        Ledger,
    )
    from coatcheck.planning import (
        Group,
        Plan,
        plan,
    )
    from coatcheck.randomizers import (
        BoundedResponse,
        FieldwiseResponse,
        GridResponse,
        Laplace,
        MinkowskiResponse,
        PlanarLaplace,
        PrivHS,
        PrivUnit,
        PrivUnitG,
        Randomizer,
        SquareWave,
        Staircase,
        choose,
        fieldwise,
    )
    from coatcheck.tasks import (
        References,
        Task,
        Values,
    )
    from coatcheck.tasks.download import (
        Download,
    )
    from coatcheck.tasks.equivariance import (
        check_equivariance,
    )
    from coatcheck.tasks.learning import (
        Learning,
    )
    from coatcheck.tasks.matching import (
        LeastCostMatching,
        MaximumMatching,
    )
    from coatcheck.tasks.neighbours import (
        Neighbours,
    )
    from coatcheck.tuning import (
        tune,
    )

__version__ = "0.1.0"

_CONTENTS = {
    "Ball": "domain",
    "BoundedResponse": "randomizers",
    "Box": "domain",
    "Categories": "domain",
    "Download": "tasks.download",
    "Error": "errors",
    "FieldwiseResponse": "randomizers",
    "GridResponse": "randomizers",
    "Group": "planning",
    "Guarantee": "amplification",
    "Laplace": "randomizers",
    "Learning": "tasks.learning",
    "LeastCostMatching": "tasks.matching",
    "Ledger": "ledger",
    "MaximumMatching": "tasks.matching",
    "MinkowskiResponse": "randomizers",
    "Misuse": "errors",
    "Neighbours": "tasks.neighbours",
    "OutsideDomain": "errors",
    "Plan": "planning",
    "PlanarLaplace": "randomizers",
    "PrivHS": "randomizers",
    "PrivUnit": "randomizers",
    "PrivUnitG": "randomizers",
    "Product": "domain",
    "Randomizer": "randomizers",
    "References": "tasks",
    "Refused": "errors",
    "SquareWave": "randomizers",
    "Staircase": "randomizers",
    "Task": "tasks",
    "Values": "tasks",
    "amplify": "amplification",
    "calibrate": "amplification",
    "check_equivariance": "tasks.equivariance",
    "choose": "randomizers",
    "compare": "comparison",
    "compose": "composition",
    "delta_curve": "amplification",
    "fieldwise": "randomizers",
    "plan": "planning",
    "seeded": "entropy",
    "system": "entropy",
    "tune": "tuning",
}

__all__ = [
    "Ball",
    "BoundedResponse",
    "Box",
    "Categories",
    "Download",
    "Error",
    "FieldwiseResponse",
    "GridResponse",
    "Group",
    "Guarantee",
    "Laplace",
    "Learning",
    "LeastCostMatching",
    "Ledger",
    "MaximumMatching",
    "MinkowskiResponse",
    "Misuse",
    "Neighbours",
    "OutsideDomain",
    "Plan",
    "PlanarLaplace",
    "PrivHS",
    "PrivUnit",
    "PrivUnitG",
    "Product",
    "Randomizer",
    "References",
    "Refused",
    "SquareWave",
    "Staircase",
    "Task",
    "Values",
    "amplify",
    "calibrate",
    "check_equivariance",
    "choose",
    "compare",
    "compose",
    "delta_curve",
    "fieldwise",
    "plan",
    "seeded",
    "system",
    "tune",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load a public name from the module that holds it."""
    if name not in _CONTENTS:
        raise AttributeError(f"module 'coatcheck' has no attribute {name!r}")
    value = getattr(import_module(f"coatcheck.{_CONTENTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the table of contents to completion."""
    return sorted(__all__)
