"""The depot: files of rounds that no database row should hold, each whole or not there.

Partitions of batches, and what the stages of a release leave for each other. A round has one
folder for each of its keys; it goes when the key does. What is put here is sealed under that key
by the store, so a name says nothing but a stage and a number.
"""

import re
from abc import ABC, abstractmethod
from typing import Final

from coatcheck.errors import Unavailable
from coatcheck.stores.vault import KeyName

FOLDER: Final = re.compile(r"([0-9a-f]{64})\.([a-z]+)")
"""How the files of a round under one of its keys are called together."""


class Depot(ABC):
    """A place for files, by round and key, and then by name."""

    @abstractmethod
    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Keep a file, in place of an older one of this name.

        *Guarantee:* when this returns, all bytes are durable; before that, nobody sees any.
        """

    @abstractmethod
    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Give a file, or a part of it; `Unavailable` if it is not there."""

    @abstractmethod
    def names(self, of: KeyName) -> set[str]:
        """List the files of a round under one of its keys."""

    @abstractmethod
    def drop(self, of: KeyName) -> None:
        """Remove all files of a round under one of its keys."""

    @abstractmethod
    def rounds(self) -> set[KeyName]:
        """List of which rounds and keys there are files."""


class MemoryDepot(Depot):
    """Files in the memory of this process, for stores in memory."""

    def __init__(self) -> None:
        self._files: dict[KeyName, dict[str, bytes]] = {}

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Keep a file."""
        self._files.setdefault(of, {})[name] = raw

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Give a file, or a part of it."""
        try:
            raw = self._files[of][name]
        except KeyError:
            raise gone(name) from None
        return raw[start:] if size is None else raw[start : start + size]

    def names(self, of: KeyName) -> set[str]:
        """List the files of a round under one of its keys."""
        return set(self._files.get(of, ()))

    def drop(self, of: KeyName) -> None:
        """Remove all files of a round under one of its keys."""
        self._files.pop(of, None)

    def rounds(self) -> set[KeyName]:
        """List of which rounds and keys there are files."""
        return set(self._files)


def gone(name: str) -> Unavailable:
    """Say that a file is not there."""
    return Unavailable(f"the depot has no {name} of this round: has it lost files?")
