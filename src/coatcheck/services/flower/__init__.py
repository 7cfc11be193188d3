"""Flower with private updates: clients report through coatcheck, and Flower carries the model.

A `Participant` is a client's side: its mod hands the update to coatcheck's shuffler, and Flower
gets a reply that is the same whatever the update was. `PrivateMean` is the strategy: it opens a
round, waits for the private mean, moves the model and publishes the next one. What Flower still
sees is in docs/how-to/use-with-flower.md.
"""

from coatcheck.errors import Misuse

try:
    from coatcheck.services.flower.participant import Participant, attach
    from coatcheck.services.flower.strategy import Organiser, PrivateMean
except ModuleNotFoundError as missing:  # pragma: no cover - an extra
    raise Misuse(
        f"{missing.name} is missing: private updates need Flower, pip install 'coatcheck[flower]'"
    ) from None

__all__ = ["Organiser", "Participant", "PrivateMean", "attach"]
