"""What a stage is, and what does its parts.

A stage is a function of a crate, the settings and a few plain values. It loads keys by itself, so
none is ever given to a runner, and it may be done twice.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from coatcheck.services.settings import Settings
from coatcheck.stores.crate import Crate
from coatcheck.stores.depot import open_depot
from coatcheck.stores.vault import Vault

Stage = Callable[..., bytes]
Given = tuple[Any, ...]
Done = Callable[[Given, bytes], None]


class Runner(Protocol):
    """Does the parts of a stage."""

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part, and tell each result as it comes.

        A part is taken when there is a hand for it. Whatever fails is raised, and those that were
        told are done.
        """


def run_stage(stage: Stage, settings: Settings, digest: bytes, part: Given) -> bytes:
    """Do a part of a stage, in whichever process this is."""
    url, keys, place = settings.places
    crate = Crate(Vault(keys), open_depot(place, url=url, keys=keys), digest)
    return stage(crate, settings, *part)
