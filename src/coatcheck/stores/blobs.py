"""Blob stores (memory, folder, object store), and the files of a round sealed in them.

Blobs are files of rounds that no database row should hold: partitions of batches, and what the
stages of a release or an answer leave for each other. A round has one folder for each of its keys;
it goes when the key does. Everything is sealed under that key before it gets here, so a name shows
a stage and numbers only. Each file is there in whole or not at all. SPEC section 10.
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

FOLDER: Final = re.compile(r"([0-9a-f]{64})\.([a-z]+)")
"""The name of the folder with the files of a round under one of its keys."""


class BlobStore(ABC):
    """A store of files by round and key, and then by name."""

    @abstractmethod
    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Store a file, in place of an older one of this name.

        *Guarantee:* when this returns, all bytes are durable; before that, no reader sees any.
        """

    @abstractmethod
    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Read a file, or a part of it; `Unavailable` if it is not there."""

    @abstractmethod
    def names(self, of: KeyName) -> set[str]:
        """List the files of a round under one of its keys."""

    @abstractmethod
    def drop(self, of: KeyName) -> None:
        """Remove all files of a round under one of its keys."""

    @abstractmethod
    def rounds(self) -> set[KeyName]:
        """List the rounds and keys that have files."""


class MemoryBlobStore(BlobStore):
    """Files in the memory of this process, for stores in memory."""

    def __init__(self) -> None:
        self._files: dict[KeyName, dict[str, bytes]] = {}

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Store a file."""
        self._files.setdefault(of, {})[name] = raw

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        try:
            raw = self._files[of][name]
        except KeyError:
            raise _missing(name) from None
        return raw[start:] if size is None else raw[start : start + size]

    def names(self, of: KeyName) -> set[str]:
        """List the files of a round under one of its keys."""
        return set(self._files.get(of, ()))

    def drop(self, of: KeyName) -> None:
        """Remove all files of a round under one of its keys."""
        self._files.pop(of, None)

    def rounds(self) -> set[KeyName]:
        """List the rounds and keys that have files."""
        return set(self._files)


def _key_names(folders: Iterable[str]) -> set[KeyName]:
    """Return the rounds and keys whose folders are named."""
    matches = map(FOLDER.fullmatch, folders)
    return {(bytes.fromhex(match[1]), match[2]) for match in matches if match}


def _missing(name: str) -> Unavailable:
    return Unavailable(f"the blob store has no {name} of this round; check whether it lost files")


_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FolderBlobStore(BlobStore):
    """Files in a folder, of this machine or of a file system that several share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Write a file beside its place, then move it there."""
        with self._failures("write to"):
            path = self._path(of) / name
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_folder(self._folder)
            replace_file(path, raw, mode=0o600)

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Read a file, or a part of it."""
        with self._failures("read"):
            try:
                with (self._path(of) / name).open("rb") as stream:
                    stream.seek(start)
                    return stream.read(-1 if size is None else size)
            except FileNotFoundError:
                raise _missing(name) from None

    def names(self, of: KeyName) -> set[str]:
        """List the files; names that begin with a dot are leftovers of a crash."""
        with self._failures("read"):
            folder = self._path(of)
            paths = folder.iterdir() if folder.is_dir() else ()
            return {path.name for path in paths if not path.name.startswith(".")}

    def drop(self, of: KeyName) -> None:
        """Remove a folder."""
        with self._failures("remove files from"):
            folder = self._path(of)
            while folder.is_dir():
                with suppress(FileNotFoundError):  # another process removes it too
                    shutil.rmtree(folder)
                    sync_folder(self._folder)

    def rounds(self) -> set[KeyName]:
        """List the folders."""
        with self._failures("read"):
            paths = self._folder.iterdir() if self._folder.is_dir() else ()
            return _key_names(path.name for path in paths)

    def _path(self, of: KeyName) -> Path:
        digest, use = of
        return self._folder / f"{digest.hex()}.{use}"

    @contextmanager
    def _failures(self, action: str) -> Iterator[None]:
        """Raise what the disk failed at as our error; the step is tried again later."""
        try:
            yield
        except OSError as error:
            kind = Full if error.errno in _NO_ROOM else Unavailable
            raise kind(f"cannot {action} the blob store {self._folder}: {error.strerror}") from None


KINDS: Final = ("s3", "gs", "gcs", "abfs", "az")
"""Kinds of object stores; s3 is the one that is tested."""


class S3BlobStore(BlobStore):
    """Objects below an address such as s3://BUCKET/PREFIX, for machines that share no folder.

    An object appears whole when the store has taken it, and replaces an older one at once, so
    nothing is renamed here. Other remote file systems show half a file while it is written: mount
    those, and name the folder.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = _opened(url)

    def put(self, of: KeyName, name: str, raw: bytes) -> None:
        """Send an object."""
        with self._failures("write to"):
            self._files.pipe_file(self._path(of, name), raw)

    def get(self, of: KeyName, name: str, start: int = 0, size: int | None = None) -> bytes:
        """Fetch an object, or a part of it."""
        if size == 0:
            return b""
        end = None if size is None else start + size
        with self._failures("read"):
            try:
                raw: bytes = self._files.cat_file(
                    self._path(of, name), start=start or None, end=end
                )
            except FileNotFoundError:
                raise _missing(name) from None
        return raw

    def names(self, of: KeyName) -> set[str]:
        """List the objects."""
        return self._listed(self._path(of))

    def drop(self, of: KeyName) -> None:
        """Remove the objects."""
        with self._failures("remove files from"):
            for name in self.names(of):
                self._files.rm_file(self._path(of, name))

    def rounds(self) -> set[KeyName]:
        """List the first parts of the objects' names."""
        return _key_names(self._listed(self._root))

    def _listed(self, path: str) -> set[str]:
        with self._failures("read"):
            try:
                names = self._files.ls(path, detail=False)
            except FileNotFoundError:
                return set()
            return {name.rstrip("/").rpartition("/")[2] for name in names} - {""}

    def _path(self, of: KeyName, *name: str) -> str:
        digest, use = of
        return "/".join([self._root, f"{digest.hex()}.{use}", *name])

    @contextmanager
    def _failures(self, action: str) -> Iterator[None]:
        """Raise what the store failed at as our error; the step is tried again later."""
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - each store has other errors
            # The first line only: some errors quote the whole request.
            line = next(iter(str(error).splitlines()), "")
            reason = f"{type(error).__name__}: {line}"
            raise Unavailable(f"cannot {action} the blob store {self._url}: {reason}") from None


@cache
def _opened(url: str) -> tuple[Any, str]:
    """Open a store once per process; its library finds the credentials."""
    kind = url.partition("://")[0]
    if kind not in KINDS:
        raise Misuse(
            f"`blobs` must be a folder, or an address that begins with {', '.join(KINDS)}, not"
            f" {kind}://; mount that file system, and name the folder"
        )
    try:
        import fsspec  # noqa: PLC0415 - an extra

        # Without caches, so that objects of other processes show at once.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
    except ImportError:
        raise Misuse(f"the blob store {url} needs: pip install 'coatcheck[s3]'") from None
    return files, root.rstrip("/")


class ByteRange(NamedTuple):
    """The place of a piece in a file of pieces: its first byte, and its number of rows."""

    at: int
    length: int


class RangeRequest(NamedTuple):
    """A piece to read: its file, its number there, its first byte, and its size in bytes."""

    name: str
    number: int
    start: int
    size: int


class SealedFiles:
    """The files of a round, each sealed under the round's key, or under that of its batch.

    They are all that a stage needs of a role's store: no database. A file is bound to its name, so
    one that was moved or changed does not open.
    """

    def __init__(self, round_keys: RoundKeys, blobs: BlobStore, digest: bytes) -> None:
        self._round_keys = round_keys
        self._depot = blobs
        self.digest = digest

    def key(self, use: str = "round") -> RoundKey:
        """Return a key of the round; `Forgotten` if it is gone."""
        return self._round_keys.key(self.digest, use)

    def names(self, use: str = "round") -> set[str]:
        """List the files."""
        return self._depot.names((self.digest, use))

    def put(self, name: str, raw: bytes, *, use: str = "round") -> None:
        """Seal and store a file."""
        sealed = self.key(use).seal(raw, self.digest, name.encode())
        self._depot.put((self.digest, use), name, sealed)

    def get(self, name: str, *, use: str = "round") -> bytes:
        """Read and open a file."""
        return self._opened(self.key(use), self._depot.get((self.digest, use), name), name)

    def put_pieces(self, name: str, pieces: Sequence[bytes]) -> None:
        """Store a file of pieces that are read one by one; empty ones take no space."""
        key = self.key()
        sealed = [
            key.seal(piece, self.digest, _piece(name, number)) if piece else b""
            for number, piece in enumerate(pieces)
        ]
        self._depot.put((self.digest, "round"), name, b"".join(sealed))

    def piece(self, name: str, number: int, *, start: int, size: int) -> bytes:
        """Read a piece by its number, its first byte in the file, and its size."""
        return next(self.pieces([RangeRequest(name, number, start, size)]))

    def pieces(self, requests: Iterable[RangeRequest]) -> Iterator[bytes]:
        """Read pieces one after the other; the key is read once for all of them."""
        key = self.key()
        for name, number, start, size in requests:
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
                f"{name} in the blob store is not what was put there; restore the file, or remove"
                " it if it is no partition that another role sent: then it is made again"
            ) from None


def sealed_size(size: int) -> int:
    """Return the bytes that a piece of this size takes in its file."""
    return size + OVERHEAD if size else 0


def byte_ranges(counts: Sequence[int], width: int = 1) -> list[ByteRange]:
    """Return the place of each piece of a file, from the rows of each and the width of a row."""
    starts = accumulate((sealed_size(count * width) for count in counts), initial=0)
    return [ByteRange(start, count) for start, count in zip(starts, counts, strict=False)]


def _piece(name: str, number: int) -> bytes:
    return f"{name}/{number}".encode()
