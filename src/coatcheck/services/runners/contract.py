"""What a stage is, and what does its parts.

A stage is a function of a crate, the settings and a few plain values. It loads keys by itself, so
none is ever given to a runner, and it may be done twice.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import msgspec

from coatcheck.protocol.agreement import SettledTerms, read_signed, settle
from coatcheck.services.settings import Settings
from coatcheck.stores.crate import Crate
from coatcheck.stores.places import depot_place, open_depot
from coatcheck.stores.vault import Vault

_TERMS: Final = "terms"
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
    crate = Crate(Vault(keys, prepared=True), open_depot(place, url=url, keys=keys), digest)
    return stage(crate, settings, *part)


def elsewhere(settings: Settings) -> Settings:
    """Give what a stage on another machine needs: where files are, and no word of the database.

    The address of a database may have a password in it, and that of a collector a token.
    """
    url, keys, place = settings.places
    depot = str(depot_place(place, url=url, keys=keys))
    nothing = {"store": "elsewhere:", "traces": "", "admin_token": ""}
    return msgspec.structs.replace(settings, depot=depot, round_keys=str(keys), **nothing)


def keep_terms(crate: Crate, signed: bytes) -> None:
    """Put the signed terms of a round where its stages find them."""
    if _TERMS not in crate.names():
        crate.put(_TERMS, signed)


def terms_of(crate: Crate) -> SettledTerms:
    """Give the terms of the round that a stage works on."""
    return settle(read_signed(crate.get(_TERMS)))
