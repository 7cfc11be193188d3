"""Private individual computation: hand in a value, get back your own answer, stay one of the crowd.

This file is the table of contents and nothing else. Names are loaded when first used, so that
`import coatcheck` costs what the user uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same table for type checkers; a test keeps the two equal
    from coatcheck.accounting.amplification import (
        Guarantee,
        amplify,
        calibrate,
        delta_curve,
    )
    from coatcheck.accounting.composition import (
        compose,
    )
    from coatcheck.accounting.ledger import (
        Ledger,
    )
    from coatcheck.domains import (
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
    from coatcheck.planning import (
        Group,
        Plan,
        plan,
    )
    from coatcheck.planning.comparison import (
        compare,
    )
    from coatcheck.planning.tuning import (
        tune,
    )
    from coatcheck.protocol.board import (
        Board,
    )
    from coatcheck.protocol.client import (
        Invitation,
        Limit,
        collect,
        examine,
        read,
        write,
    )
    from coatcheck.protocol.drafting import (
        GroupDraft,
    )
    from coatcheck.protocol.server import (
        Server,
    )
    from coatcheck.protocol.shuffler import (
        Shuffler,
    )
    from coatcheck.protocol.terms import (
        Terms,
    )
    from coatcheck.protocol.ticket import (
        Ticket,
    )
    from coatcheck.protocol.trust import (
        Trust,
    )
    from coatcheck.randomizers import (
        BoundedResponse,
        FieldwiseResponse,
        GridResponse,
        MinkowskiResponse,
        Randomizer,
        choose,
        fieldwise,
        posterior_mean,
    )
    from coatcheck.simulation.places import (
        read_places,
    )
    from coatcheck.simulation.rehearsal import (
        Rehearsal,
        rehearse,
    )
    from coatcheck.simulation.round import (
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

__version__ = "0.1.0"

_CONTENTS = {
    "BadKey": "errors",
    "BadSignature": "errors",
    "Ball": "domains",
    "Board": "protocol.board",
    "BoundedResponse": "randomizers",
    "Box": "domains",
    "Categories": "domains",
    "Crowd": "simulation.round",
    "Download": "tasks.download",
    "Error": "errors",
    "FieldwiseResponse": "randomizers",
    "GridResponse": "randomizers",
    "Group": "planning",
    "GroupDraft": "protocol.drafting",
    "Guarantee": "accounting.amplification",
    "Invitation": "protocol.client",
    "Learning": "tasks.learning",
    "LeastCostMatching": "tasks.matching",
    "Ledger": "accounting.ledger",
    "Limit": "protocol.client",
    "Malformed": "errors",
    "MaximumMatching": "tasks.matching",
    "MinkowskiResponse": "randomizers",
    "Missing": "errors",
    "Misuse": "errors",
    "Neighbours": "tasks.neighbours",
    "Outcome": "simulation.round",
    "OutsideDomain": "errors",
    "Plan": "planning",
    "Product": "domains",
    "Randomizer": "randomizers",
    "References": "tasks",
    "Refused": "errors",
    "Rehearsal": "simulation.rehearsal",
    "Server": "protocol.server",
    "Shuffler": "protocol.shuffler",
    "Task": "tasks",
    "Terms": "protocol.terms",
    "Ticket": "protocol.ticket",
    "Trust": "protocol.trust",
    "TwoFaces": "errors",
    "Unsealable": "errors",
    "Values": "tasks",
    "amplify": "accounting.amplification",
    "calibrate": "accounting.amplification",
    "check_equivariance": "tasks.equivariance",
    "choose": "randomizers",
    "collect": "protocol.client",
    "compare": "planning.comparison",
    "compose": "accounting.composition",
    "delta_curve": "accounting.amplification",
    "examine": "protocol.client",
    "fieldwise": "randomizers",
    "plan": "planning",
    "posterior_mean": "randomizers",
    "read": "protocol.client",
    "read_places": "simulation.places",
    "rehearse": "simulation.rehearsal",
    "seeded": "entropy",
    "simulate": "simulation.round",
    "system": "entropy",
    "tune": "planning.tuning",
    "view": "simulation.round",
    "write": "protocol.client",
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
    "Product",
    "Randomizer",
    "References",
    "Refused",
    "Rehearsal",
    "Server",
    "Shuffler",
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
