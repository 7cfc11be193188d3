"""A role's keys: the first for new rounds, the others for the rounds they were made for.

Rotation is a new key file in front of the list; an old one goes when its rounds are over.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from coatcheck.errors import Misuse
from coatcheck.protocol.keyfiles import PublicKeys, read_keys
from coatcheck.protocol.keys import KeyPairs


class Keyring:
    """The key files of one role, found by their public halves."""

    def __init__(self, paths: Sequence[Path]) -> None:
        files = [read_keys(path) for path in paths]
        self.public: PublicKeys = files[0].public
        self._pairs = {file.public.verifying: file.pairs for file in files}

    @property
    def current(self) -> KeyPairs:
        """The keys for new rounds."""
        return self._pairs[self.public.verifying]

    def sign_by_all(self, message: bytes) -> list[bytes]:
        """Sign with every key, for whoever knows one of them."""
        return [pairs.signing.sign(message) for pairs in self._pairs.values()]

    def of(self, *named: str) -> KeyPairs:
        """Find the keys that terms name for this role, in one of these places."""
        for verifying in named:
            if verifying in self._pairs:
                return self._pairs[verifying]
        raise Misuse("the terms name a key that this service does not have: list its file")

    def has(self, verifying: str) -> bool:
        """Tell whether a key is one of these."""
        return verifying in self._pairs


@cache
def keyring_of(paths: tuple[Path, ...]) -> Keyring:
    """Read key files once per process, for jobs."""
    return Keyring(paths)
