"""Round keys: one key per round outside the database, so that a round can be erased for good.

A database remembers what was deleted: in its log, in free pages, in backups and replicas. So what a
round must forget is stored only under the round's key: ids as keyed hashes, everything else sealed.
The key is a separate file, and destroying that file erases the round: `RoundStore.destroy_keys`
does so after each move to a phase that needs the key no more. SPEC section 10. The secrets of the
role's gateway are in the same folder, because they must be forgotten in the same way (section 17).
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from coatcheck.durable_files import create_file, erase_file, replace_file, sync_folder
from coatcheck.entropy import system
from coatcheck.errors import Forgotten, Misuse, Unavailable, Unsealable

_SIZE: Final = 32
OVERHEAD: Final = 16
"""The bytes that sealing adds."""
_NAME: Final = re.compile(r"([0-9a-f]{64})\.([a-z]+)")
_MARK: Final = "mark"
_GATEWAY: Final = "gateway."
_OTHERS: Final = 0o077

KeyName = tuple[bytes, str]
"""A round's digest, and what the key is for: `round`, or the `batch` made of it."""


class RoundKey:
    """The key of one round: it hashes ids, seals what is stored, and derives the order's secret.

    Sealing is deterministic (AES-SIV, RFC 5297): the same upload gives the same bytes, so a store
    recognizes it without opening anything, and no nonce can repeat.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._hashes: dict[str, hashlib.blake2b] = {}
        self._cipher = AESSIV(self._derived(b"seal", 64))

    def __repr__(self) -> str:
        return "RoundKey()"

    @property
    def secret(self) -> bytes:
        """The secret of the order in which a shuffler releases."""
        return self._derived(b"order", _SIZE)

    def name(self, what: bytes, *, kind: str) -> bytes:
        """Hash an id of some kind: equal ids have equal names, and nothing else shows in them."""
        if kind not in self._hashes:
            person = b"cc " + kind.encode()
            self._hashes[kind] = hashlib.blake2b(digest_size=16, key=self._raw, person=person)
        copy = self._hashes[kind].copy()  # half the time of keying the hash each time
        copy.update(what)
        return copy.digest()

    def seal(self, raw: bytes, *bound: bytes) -> bytes:
        """Seal bytes, bound to the place where they are stored."""
        return self._cipher.encrypt(raw, list(bound))

    def open(self, sealed: bytes, *bound: bytes) -> bytes:
        """Open bytes that were sealed for this place; `Unsealable` if they are not."""
        try:
            return self._cipher.decrypt(sealed, list(bound))
        except (InvalidTag, ValueError):
            raise Unsealable(
                "the stored bytes are not those that were sealed for this place"
            ) from None

    def _derived(self, label: bytes, size: int) -> bytes:
        return hashlib.blake2b(digest_size=size, key=self._raw, person=b"cc " + label).digest()


def _read(path: Path) -> bytes:
    """Read a key in three system calls instead of nine: every commit does it."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _SIZE + 1)
    finally:
        os.close(file)


class RoundKeys:
    """A folder of keys, or the memory of this process if there is no folder.

    Keys are read whenever they are used and never cached, so that a destroyed key is gone for all
    processes at once. A `prepared` folder has a mark; if that is missing, the folder is away, for
    example not mounted.
    """

    def __init__(self, folder: Path | None, *, prepared: bool = False) -> None:
        self._folder = folder
        self._is_prepared = prepared
        self._in_memory: dict[KeyName, bytes] = {}
        self._gateway_secrets: dict[int, bytes] = {}

    def make(self, digest: bytes, use: str = "round") -> RoundKey:
        """Return a key; draw it now if it is not there.

        *Guarantee:* when this returns, the file and its name are on the disk.
        """
        try:
            return self.key(digest, use)
        except Forgotten:
            raw = system().token(_SIZE)
        if self._folder is None:
            self._in_memory[digest, use] = raw
        else:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(self._path(digest, use), raw, mode=0o600)
                sync_folder(self._folder.parent)
            except OSError as error:
                raise Unavailable(f"cannot write a key into {self._folder}: {error}") from None
        return RoundKey(raw)

    def key(self, digest: bytes, use: str = "round") -> RoundKey:
        """Return a key; `Forgotten` if it is not there."""
        if self._folder is None:
            raw = self._in_memory.get((digest, use), b"")
        else:
            try:
                raw = _read(self._path(digest, use))
            except FileNotFoundError:
                self._check_there()
                raw = b""
            except OSError as error:
                raise Unavailable(f"cannot read a key in {self._folder}: {error}") from None
        if len(raw) != _SIZE or raw == bytes(_SIZE):  # zeros: it is being destroyed
            raise Forgotten(
                "the key of this round is gone, and with it all that was stored under it"
            )
        return RoundKey(raw)

    def has(self, digest: bytes, use: str) -> bool:
        """Return whether a key is there."""
        try:
            self.key(digest, use)
        except Forgotten:
            return False
        return True

    def destroy(self, digest: bytes, use: str) -> None:
        """Overwrite and remove a key, if it is there.

        *Guarantee:* when this returns, the file's name is gone from the disk.
        """
        self._in_memory.pop((digest, use), None)
        if self._folder is None:
            return
        path = self._path(digest, use)
        try:
            erase_file(path)
        except FileNotFoundError:
            self._check_there()
        except OSError as error:
            raise Unavailable(f"cannot remove a key from {self._folder}: {error}") from None

    def gateway_secret(self, period: int) -> bytes:
        """Return the secret of the role's gateway in a period; draw it if no process has yet.

        *Guarantee:* all processes of the folder get the same one, also after a restart.
        """
        fresh = system().token(_SIZE)
        if self._folder is None:
            return self._gateway_secrets.setdefault(period, fresh)
        path = self._folder / f"{_GATEWAY}{period}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return fresh if create_file(path, fresh, mode=0o600) else _read(path)
        except OSError as error:
            raise Unavailable(f"cannot write a key into {self._folder}: {error}") from None

    def gateway_periods(self) -> list[int]:
        """List the periods whose gateway secret is there."""
        if self._folder is None:
            return sorted(self._gateway_secrets)
        names = [path.name for path in self._folder.glob(f"{_GATEWAY}*")]
        periods = [name.removeprefix(_GATEWAY) for name in names]
        return sorted(int(period) for period in periods if period.isdecimal())

    def forget_gateway_secret(self, period: int) -> None:
        """Overwrite and remove the gateway secret of a period, if it is there."""
        self._gateway_secrets.pop(period, None)
        if self._folder is None:
            return
        try:
            erase_file(self._folder / f"{_GATEWAY}{period}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(f"cannot remove a key from {self._folder}: {error}") from None

    def keep_only(self, needed: Iterable[KeyName]) -> set[KeyName]:
        """Destroy every key but these; return those of them that are missing."""
        keep, existing = set(needed), self.listed()
        for digest, use in existing - keep:
            self.destroy(digest, use)
        return keep - existing

    def prepare(self) -> None:
        """Make the folder; refuse one that others can read, or that cannot be written."""
        folder = self._folder
        if folder is None:
            return
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Misuse(f"cannot make {folder} for round keys: {error.strerror}") from None
        if stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
            raise Misuse(f"{folder} is open to others; run `chmod 700 {folder}`")
        if not os.access(folder, os.W_OK):
            raise Misuse(f"{folder} for round keys cannot be written; let this user write it")
        if not (folder / _MARK).exists():
            replace_file(folder / _MARK, system().token(16).hex().encode(), mode=0o600)
        self._is_prepared = True

    def _check_there(self) -> None:
        """Raise if the folder is away, for example not mounted, rather than without this key.

        A round whose key is gone is abandoned for good.
        """
        if self._is_prepared and not self.mark:
            raise Unavailable(
                f"{self._folder} is not the folder of round keys that was here; mount it. If its"
                " keys are lost, restart the service: it then abandons their rounds"
            )

    @property
    def mark(self) -> str:
        """A random name that distinguishes this folder from any other; empty in memory."""
        try:
            return (self._folder / _MARK).read_text(encoding="ascii") if self._folder else ""
        except OSError:
            return ""

    def listed(self) -> set[KeyName]:
        """List the keys that are there."""
        if self._folder is None:
            return set(self._in_memory)
        self._check_there()
        try:
            matches = [_NAME.fullmatch(path.name) for path in self._folder.iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise Unavailable(f"cannot list {self._folder}: {error}") from None
        return {(bytes.fromhex(match[1]), match[2]) for match in matches if match}

    def _path(self, digest: bytes, use: str) -> Path:
        if self._folder is None:
            raise Misuse("round keys in memory have no files")
        return self._folder / f"{digest.hex()}.{use}"
