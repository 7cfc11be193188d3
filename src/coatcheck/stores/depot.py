"""The depot: files of rounds that no database row should hold, each whole or not there.

Partitions of batches, and what the stages of a release leave for each other. A round has one
folder for each of its keys; it goes when the key does. What is put here is sealed under that key
by the store, so a name says nothing but a stage and a number.
"""

import errno
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coatcheck.errors import Full, Unavailable
from coatcheck.files import replace_file, sync_folder
from coatcheck.stores.vault import KeyName

_FOLDER: Final = re.compile(r"([0-9a-f]{64})\.([a-z]+)")
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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

    def keep_only(self, needed: Iterable[KeyName]) -> None:
        """Remove everything but the files of these."""
        for of in self.rounds() - set(needed):
            self.drop(of)


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
            raise _gone(name) from None
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


class FolderDepot(Depot):
    """Files in a folder, of this machine or of a file system that several share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Write a file beside its place, then move it there."""
        with self._told("write to"):
            path = self._path(of) / name
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self._folder)
            replace_file(path, raw, mode=0o600)

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        with self._told("read"):
            try:
                with (self._path(of) / name).open("rb") as stream:
                    stream.seek(start)
                    return stream.read(-1 if size is None else size)
            except FileNotFoundError:
                raise _gone(name) from None

    def names(self, of: KeyName) -> set[str]:
        """List the files; one that begins with a dot is what a crash left, and does not count."""
        with self._told("read"):
            folder = self._path(of)
            found = folder.iterdir() if folder.is_dir() else ()
            return {path.name for path in found if not path.name.startswith(".")}

    def drop(self, of: KeyName) -> None:
        """Remove a folder; what it held opens no more when its key is gone."""
        with self._told("remove files from"):
            folder = self._path(of)
            if folder.is_dir():
                shutil.rmtree(folder)
                sync_folder(self._folder)

    def rounds(self) -> set[KeyName]:
        """List the folders."""
        with self._told("read"):
            found = self._folder.iterdir() if self._folder.is_dir() else ()
            named = [_FOLDER.fullmatch(path.name) for path in found]
            return {(bytes.fromhex(name[1]), name[2]) for name in named if name}

    def _path(self, of: KeyName) -> Path:
        digest, use = of
        return self._folder / f"{digest.hex()}.{use}"

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Say what the disk does not do; it is tried again, so mending it is enough."""
        try:
            yield
        except OSError as error:
            kind = Full if error.errno in _NO_ROOM else Unavailable
            raise kind(f"cannot {what} the depot {self._folder}: {error.strerror}") from None


def _gone(name: str) -> Unavailable:
    return Unavailable(f"the depot has no {name} of this round: has it lost files?")


def open_depot(place: Path | None, *, url: str, keys: Path | None) -> Depot:
    """Open a depot: by default beside a store in a file, else in the folder of round keys."""
    kind, _, name = url.partition(":")
    if kind == "sqlite":
        place = place or Path(name).with_suffix(".depot")
    if kind == "memory" or keys is None:
        return MemoryDepot()
    return FolderDepot(place or keys / "depot")
