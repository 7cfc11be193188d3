"""A depot in a folder: files that are written beside their place, then moved there."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from coatcheck.errors import Full, Unavailable
from coatcheck.files import replace_file, sync_folder
from coatcheck.stores.depot import FOLDER, Depot, gone
from coatcheck.stores.vault import KeyName

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
