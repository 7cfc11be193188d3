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
    from coatcheck.drafting import (
        GroupDraft,
    )
    from coatcheck.entropy import (
        seeded,
        system,
    )
    from coatcheck.errors import (
        BadKey,
        BadSignature,
        Error,
        Malformed,
        Missing,
        Misuse,
        OutsideDomain,
        Refused,
        TwoFaces,
        Unsealable,
    )
    from coatcheck.ledger import (
        Ledger,
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
    from coatcheck.server import (
        Server,
    )
    from coatcheck.shuffler import (
        Shuffler,
    )
    from coatcheck.simulation import (
        Crowd,
        Outcome,
        simulate,
        view,
    )
    from coatcheck.terms import (
        Terms,
    )
    from coatcheck.ticket import (
        Ticket,
    )

__version__ = "0.1.0"

_CONTENTS = {
    "BadKey": "errors",
    "BadSignature": "errors",
    "Ball": "domain",
    "Board": "board",
    "BoundedResponse": "randomizers",
    "Box": "domain",
    "Categories": "domain",
    "Crowd": "simulation",
    "Error": "errors",
    "FieldwiseResponse": "randomizers",
    "GridResponse": "randomizers",
    "Group": "planning",
    "Guarantee": "amplification",
    "Laplace": "randomizers",
    "Ledger": "ledger",
    "MinkowskiResponse": "randomizers",
    "Missing": "errors",
    "Misuse": "errors",
    "Outcome": "simulation",
    "OutsideDomain": "errors",
    "Plan": "planning",
    "PlanarLaplace": "randomizers",
    "PrivHS": "randomizers",
    "PrivUnit": "randomizers",
    "PrivUnitG": "randomizers",
    "Product": "domain",
    "Randomizer": "randomizers",
    "Refused": "errors",
    "Server": "server",
    "Shuffler": "shuffler",
    "SquareWave": "randomizers",
    "Staircase": "randomizers",
    "amplify": "amplification",
    "calibrate": "amplification",
    "choose": "randomizers",
    "collect": "client",
    "compare": "comparison",
    "compose": "composition",
    "delta_curve": "amplification",
    "fieldwise": "randomizers",
    "plan": "planning",
    "seeded": "entropy",
    "simulate": "simulation",
    "system": "entropy",
    "view": "simulation",
    "write": "client",
}

__all__ = [
    "BadKey",
    "BadSignature",
    "Ball",
    "Board",
    "BoundedResponse",
    "Box",
    "Categories",
    "Crowd",
    "Error",
    "FieldwiseResponse",
    "GridResponse",
    "Group",
    "Guarantee",
    "Laplace",
    "Ledger",
    "MinkowskiResponse",
    "Missing",
    "Misuse",
    "Outcome",
    "OutsideDomain",
    "Plan",
    "PlanarLaplace",
    "PrivHS",
    "PrivUnit",
    "PrivUnitG",
    "Product",
    "Randomizer",
    "Refused",
    "Server",
    "Shuffler",
    "SquareWave",
    "Staircase",
    "Terms",
    "Ticket",
    "TwoFaces",
    "Unsealable",
    "__version__",
    "amplify",
    "calibrate",
    "choose",
    "collect",
    "compare",
    "compose",
    "delta_curve",
    "fieldwise",
    "plan",
    "seeded",
    "simulate",
    "system",
    "view",
    "write",
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
