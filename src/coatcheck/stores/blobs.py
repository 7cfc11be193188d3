"""A depot in an object store, such as S3, for roles whose machines share no folder.

An object appears whole when the store has taken it, and takes the place of an older one at once.
That is what a depot promises, so nothing is renamed. Other remote file systems show half a file
while it is written: mount those, and name the folder.
"""

import errno
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

from coatcheck.durable_files import replace_file, sync_folder
from coatcheck.errors import Full, Misuse, Unavailable, Unsealable
from coatcheck.stores.round_keys import OVERHEAD, KeyName, RoundKey, RoundKeys

# HOUSE-DOC stores.depot: 'The depot: files of rounds that no database row should hold, each whole or not there.\n\nPartitions of batches, and what the stages of a release leave for each other. A round has one\nfolder for each of its keys; it goes when the key does. What is put here is sealed under that key\nby the store, so a name says nothing but a stage and a number.\n'
FOLDER: Final = re.compile(r"([0-9a-f]{64})\.([a-z]+)")
"""How the files of a round under one of its keys are called together."""


class BlobStore(ABC):
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


class MemoryBlobStore(BlobStore):
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


# HOUSE-DOC stores.folder: 'A depot in a folder: files that are written beside their place, then moved there.'
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FolderBlobStore(BlobStore):
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
                raise gone(name) from None

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
            while folder.is_dir():
                with suppress(FileNotFoundError):  # somebody else removes it too
                    shutil.rmtree(folder)
                    sync_folder(self._folder)

    def rounds(self) -> set[KeyName]:
        """List the folders."""
        with self._told("read"):
            found = self._folder.iterdir() if self._folder.is_dir() else ()
            named = [FOLDER.fullmatch(path.name) for path in found]
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


KINDS: Final = ("s3", "gs", "gcs", "abfs", "az")
"""Stores of objects; s3 is the one that is tested."""


class S3BlobStore(BlobStore):
    """Objects below an address such as s3://BUCKET/PREFIX."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = _opened(url)

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Send an object."""
        with self._told("write to"):
            self._files.pipe_file(self._path(of, name), raw)

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Fetch an object, or a part of it."""
        if size == 0:
            return b""
        end = None if size is None else start + size
        with self._told("read"):
            try:
                raw: bytes = self._files.cat_file(
                    self._path(of, name), start=start or None, end=end
                )
            except FileNotFoundError:
                raise gone(name) from None
        return raw

    def names(self, of: KeyName) -> set[str]:
        """List the objects."""
        return self._listed(self._path(of))

    def drop(self, of: KeyName) -> None:
        """Remove the objects; what they held opens no more when its key is gone."""
        with self._told("remove files from"):
            for name in self.names(of):
                self._files.rm_file(self._path(of, name))

    def rounds(self) -> set[KeyName]:
        """List what the objects' names begin with."""
        named = map(FOLDER.fullmatch, self._listed(self._root))
        return {(bytes.fromhex(name[1]), name[2]) for name in named if name}

    def _listed(self, path: str) -> set[str]:
        with self._told("read"):
            try:
                found = self._files.ls(path, detail=False)
            except FileNotFoundError:
                return set()
            return {one.rstrip("/").rpartition("/")[2] for one in found} - {""}

    def _path(self, of: KeyName, *name: str) -> str:
        digest, use = of
        return "/".join([self._root, f"{digest.hex()}.{use}", *name])

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Say what the store does not do; it is tried again, so mending it is enough."""
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - each store has errors of its own
            # Its first line: some quote the whole request.
            line = next(iter(str(error).splitlines()), "")
            told = f"{type(error).__name__}: {line}"
            raise Unavailable(f"cannot {what} the depot {self._url}: {told}") from None


@cache
def _opened(url: str) -> tuple[Any, str]:
    """Open a store once per process; where its credentials are, its own library knows."""
    kind = url.partition("://")[0]
    if kind not in KINDS:
        raise Misuse(
            f"a depot is a folder, or an address of objects ({', '.join(KINDS)}), not {kind}://:"
            " mount it, and name the folder"
        )
    try:
        import fsspec  # noqa: PLC0415 - an extra

        # What another process puts there is to be seen at once.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError:
        raise Misuse(f"the depot {url} needs: pip install 'coatcheck[s3]'") from None
    return files, root.rstrip("/")


# HOUSE-DOC stores.crate: "Crates: the files of one round in the depot, sealed under the round's keys.\n\nAll that a stage needs of a role's store: no database. A file is bound to its name, so one that was\nmoved or changed does not open. SPEC section 10.\n"
class ByteRange(NamedTuple):
    """Where in a file of pieces one is: at which byte it begins, and how many rows it has."""

    at: int
    length: int


class RangeRequest(NamedTuple):
    """A piece: its file and number there, at which byte it begins, and how many bytes it has."""

    name: str
    number: int
    start: int
    size: int


class SealedFiles:
    """The files of a round; each is sealed under the round's key, or under that of its batch."""

    def __init__(self, vault: RoundKeys, depot: BlobStore, digest: bytes) -> None:
        self._vault = vault
        self._depot = depot
        self.digest = digest

    def key(self, use: str = "round") -> RoundKey:
        """Give a key of the round, which must be there."""
        return self._vault.key(self.digest, use)

    def names(self, use: str = "round") -> set[str]:
        """List the files."""
        return self._depot.names((self.digest, use))

    def put(self, name: str, raw: bytes, *, use: str = "round") -> None:
        """Keep a file."""
        sealed = self.key(use).seal(raw, self.digest, name.encode())
        self._depot.put((self.digest, use), name, sealed)

    def get(self, name: str, *, use: str = "round") -> bytes:
        """Give a file."""
        return self._opened(self.key(use), self._depot.get((self.digest, use), name), name)

    def put_pieces(self, name: str, pieces: Sequence[bytes]) -> None:
        """Keep a file of pieces that are read one by one; empty ones take no room."""
        key = self.key()
        sealed = [
            key.seal(piece, self.digest, _piece(name, number)) if piece else b""
            for number, piece in enumerate(pieces)
        ]
        self._depot.put((self.digest, "round"), name, b"".join(sealed))

    def piece(self, name: str, number: int, *, start: int, size: int) -> bytes:
        """Give a piece of so many bytes, which begins at this place of its file."""
        return next(self.pieces([RangeRequest(name, number, start, size)]))

    def pieces(self, wanted: Iterable[RangeRequest]) -> Iterator[bytes]:
        """Give pieces one after the other, with the key read once: a stage may want thousands."""
        key = self.key()
        for name, number, start, size in wanted:
            if not size:
                yield b""
                continue
            sealed = self._depot.get((self.digest, "round"), name, start, sealed_size(size))
            yield self._opened(key, sealed, _piece(name, number).decode())

    def _opened(self, key: RoundKey, sealed: bytes, name: str) -> bytes:
        try:
            return key.open(sealed, self.digest, name.encode())
        except Unsealable:
            raise Unavailable(
                f"{name} in the depot is not what was put there: put it back; what a release"
                " or an answer is made of may also be removed, and is made again"
            ) from None


def sealed_size(size: int) -> int:
    """Give how many bytes a piece takes in its file."""
    return size + OVERHEAD if size else 0


def byte_ranges(counts: Sequence[int], width: int = 1) -> list[ByteRange]:
    """Find each piece of a file, of so many rows of a width."""
    starts = accumulate((sealed_size(count * width) for count in counts), initial=0)
    return [ByteRange(start, count) for start, count in zip(starts, counts, strict=False)]


def _piece(name: str, number: int) -> bytes:
    return f"{name}/{number}".encode()
