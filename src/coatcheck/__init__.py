"""Private individual computation: hand in a value, get back your own answer, stay one of the crowd.

This file lists what most programs need; `__init__.pyi` lists the same for type checkers. Names are
loaded when first used, so that `import coatcheck` costs what is used. The roles and their bytes
are in `coatcheck.protocol`, all errors in `coatcheck.errors`.
"""

from importlib import import_module

__version__ = "0.1.0"

_CONTENTS = {
    "accounting.amplification": ("Guarantee", "amplify", "calibrate"),
    "accounting.composition": ("calibrate_rounds", "compose"),
    "accounting.laws": ("Channel",),
    "accounting.ledger": ("Ledger",),
    "domains": ("Ball", "Box", "Categories", "Product"),
    "entropy": ("seeded",),
    "errors": ("Error", "Misuse", "Refused"),
    "planning": ("Group", "GroupPlan", "plan"),
    "protocol.client": ("Limit",),
    "protocol.agreement": ("Trust",),
    "randomizers": (
        *("BoundedResponse", "FieldwiseResponse", "GridResponse", "MinkowskiResponse"),
        "Prior",
        "choose",
    ),
    "services.person.session": ("Session",),
    "simulation.round": ("simulate",),
    "tasks.download": ("Download",),
    "tasks.learning": ("Learning",),
    "tasks.matching": ("LeastCostMatching", "MaximumMatching"),
    "tasks.neighbours": ("Neighbours",),
}
_MODULES = {name: module for module, names in _CONTENTS.items() for name in names}
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - names of the table


def __getattr__(name: str) -> object:
    """Load a public name from the module that holds it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'coatcheck' has no attribute {name!r}")
    value = getattr(import_module(f"coatcheck.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Offer the public names to completion."""
    return sorted(__all__)
