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
    from coatcheck.board import (
        Board,
    )
    from coatcheck.client import (
        Invitation,
        Limit,
        collect,
        examine,
        read,
        write,
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
    from coatcheck.places import (
        read_places,
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
        posterior_mean,
    )
    from coatcheck.rehearsal import (
        Rehearsal,
        rehearse,
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
    from coatcheck.terms import (
        Terms,
    )
    from coatcheck.ticket import (
        Ticket,
    )
    from coatcheck.trust import (
        Trust,
    )
    from coatcheck.tuning import (
        tune,
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
    "Download": "tasks.download",
    "Error": "errors",
    "FieldwiseResponse": "randomizers",
    "GridResponse": "randomizers",
    "Group": "planning",
    "GroupDraft": "drafting",
    "Guarantee": "amplification",
    "Invitation": "client",
    "Laplace": "randomizers",
    "Learning": "tasks.learning",
    "LeastCostMatching": "tasks.matching",
    "Ledger": "ledger",
    "Limit": "client",
    "Malformed": "errors",
    "MaximumMatching": "tasks.matching",
    "MinkowskiResponse": "randomizers",
    "Missing": "errors",
    "Misuse": "errors",
    "Neighbours": "tasks.neighbours",
    "Outcome": "simulation",
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
    "Rehearsal": "rehearsal",
    "Server": "server",
    "Shuffler": "shuffler",
    "SquareWave": "randomizers",
    "Staircase": "randomizers",
    "Task": "tasks",
    "Terms": "terms",
    "Ticket": "ticket",
    "Trust": "trust",
    "TwoFaces": "errors",
    "Unsealable": "errors",
    "Values": "tasks",
    "amplify": "amplification",
    "calibrate": "amplification",
    "check_equivariance": "tasks.equivariance",
    "choose": "randomizers",
    "collect": "client",
    "compare": "comparison",
    "compose": "composition",
    "delta_curve": "amplification",
    "examine": "client",
    "fieldwise": "randomizers",
    "plan": "planning",
    "posterior_mean": "randomizers",
    "read": "client",
    "read_places": "places",
    "rehearse": "rehearsal",
    "seeded": "entropy",
    "simulate": "simulation",
    "system": "entropy",
    "tune": "tuning",
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
    "Download",
    "Error",
    "FieldwiseResponse",
    "GridResponse",
    "Group",
    "GroupDraft",
    "Guarantee",
    "Invitation",
    "Laplace",
    "Learning",
    "LeastCostMatching",
    "Ledger",
    "Limit",
    "Malformed",
    "MaximumMatching",
    "MinkowskiResponse",
    "Missing",
    "Misuse",
    "Neighbours",
    "Outcome",
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
    "Rehearsal",
    "Server",
    "Shuffler",
    "SquareWave",
    "Staircase",
    "Task",
    "Terms",
    "Ticket",
    "Trust",
    "TwoFaces",
    "Unsealable",
    "Values",
    "__version__",
    "amplify",
    "calibrate",
    "check_equivariance",
    "choose",
    "collect",
    "compare",
    "compose",
    "delta_curve",
    "examine",
    "fieldwise",
    "plan",
    "posterior_mean",
    "read",
    "read_places",
    "rehearse",
    "seeded",
    "simulate",
    "system",
    "tune",
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
