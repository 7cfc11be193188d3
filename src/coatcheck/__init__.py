"""Private individual computation: hand in a value, get your own answer, stay one of the crowd.

**Public** are the names in `__all__`, the modules `coatcheck.errors`, `coatcheck.entropy` and
`coatcheck.testing`, and the further names in the table of docs/reference/api.md. **Private** is
every other name, with or without an underscore: it may change in any version. Inside a file, an
underscore means "only this file".

Python loads a name on first use, so that `import coatcheck` costs only what is used. Every name can
be imported without extras; what needs a missing extra names it when it is used. `__init__.pyi`
lists the same names for type checkers.
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
    """Load a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'coatcheck' has no attribute {name!r}")
    value = getattr(import_module(f"coatcheck.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return sorted(__all__)
