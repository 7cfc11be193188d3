"""A depot in an object store, such as S3, for roles whose machines share no folder.

An object appears whole when the store has taken it, and takes the place of an older one at once.
That is what a depot promises, so nothing is renamed. Other remote file systems show half a file
while it is written: mount those, and name the folder.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from coatcheck.errors import Misuse, Unavailable
from coatcheck.stores.depot import FOLDER, Depot, gone
from coatcheck.stores.vault import KeyName

KINDS: Final = ("s3", "gs", "gcs", "abfs", "az")
"""Stores of objects; s3 is the one that is tested."""


class BucketDepot(Depot):
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
