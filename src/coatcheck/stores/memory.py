"""Stores that forget with the process: for tests and simulations, and the meaning of the others."""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from coatcheck.errors import Fenced, Misuse
from coatcheck.stores.contracts import Gathering, Parcel, Shown, Sitting, Verdict
from coatcheck.stores.shuffler_tables import judge


class _MemoryLease:
    """A lease that expires by a clock that never steps."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held = ("", 0, 0.0)
        self._lock = threading.RLock()

    def lead(self, holder: str, *, seconds: float) -> int | None:
        """Take or renew the lease."""
        with self._lock:
            last, fence, expires = self._held
            if last != holder and self._clock() < expires:
                return None
            after = fence if last == holder else fence + 1
            self._held = (holder, after, self._clock() + seconds)
            return after

    def resign(self, holder: str) -> None:
        """Let the next one take over at once."""
        with self._lock:
            if self._held[0] == holder:
                self._held = ("", self._held[1], 0.0)

    def probe(self) -> None:
        """Memory always answers."""

    def close(self) -> None:
        """Nothing to let go of."""

    def _guard(self, fence: int) -> None:
        if self._held[1] != fence:
            raise Fenced("another process leads this database now; this one stands by")


class MemoryShuffler(_MemoryLease):
    """A `ShufflerStore` in dictionaries."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._pledges: dict[str, bytes] = {}
        self._rounds: dict[bytes, Gathering] = {}
        self._parcels: dict[bytes, dict[bytes, Parcel]] = {}
        self._blobs: dict[tuple[bytes, str], bytes] = {}

    def pledge(self, name: str, digest: bytes, *, fence: int) -> bytes:
        """Remember the one digest signed under a name."""
        with self._lock:
            self._guard(fence)
            return self._pledges.setdefault(name, digest)

    def begin(self, round_: Gathering, *, fence: int) -> None:
        """Open a round; again, nothing changes."""
        with self._lock:
            self._guard(fence)
            self._rounds.setdefault(round_.digest, round_)
            self._parcels.setdefault(round_.digest, {})

    def rounds(self) -> list[Gathering]:
        """List all rounds."""
        with self._lock:
            return list(self._rounds.values())

    def put(self, parcels: Sequence[Parcel], *, fence: int) -> list[Verdict]:
        """Keep uploads; one verdict each."""
        with self._lock:
            self._guard(fence)
            return [self._put(parcel) for parcel in parcels]

    def _put(self, parcel: Parcel) -> Verdict:
        round_ = self._rounds.get(parcel.digest)
        kept = self._parcels.get(parcel.digest, {})
        verdict = judge(
            parcel,
            known={one.id: (one.group, one.body) for one in kept.values() if one.id == parcel.id},
            spent={one.token: one.id for one in kept.values() if one.token is not None},
            is_open=round_ is not None and round_.phase == "open",
        )
        if verdict is Verdict.NEW:
            kept[parcel.id] = parcel
        return verdict

    def knows(self, parcel: Parcel) -> bool:
        """Tell whether this very upload is kept."""
        with self._lock:
            kept = self._parcels.get(parcel.digest, {}).get(parcel.id)
            return kept is not None and (kept.group, kept.body) == (parcel.group, parcel.body)

    def crowd(self, digest: bytes) -> dict[int, int]:
        """Count the uploads of each group."""
        with self._lock:
            return dict(Counter(one.group for one in self._parcels.get(digest, {}).values()))

    def parcels(self, digest: bytes) -> list[Parcel]:
        """Give all uploads of a round by their random ids."""
        with self._lock:
            kept = sorted(self._parcels.get(digest, {}).values(), key=lambda one: one.id)
            return [Parcel(one.digest, one.group, one.id, one.body) for one in kept]

    def close_round(self, digest: bytes, *, fence: int) -> None:
        """Take no more uploads."""
        self._move(digest, "open", "closed", fence)

    def reopen(self, digest: bytes, *, fence: int) -> None:
        """Take uploads again."""
        self._move(digest, "closed", "open", fence)

    def _move(self, digest: bytes, before: str, after: str, fence: int) -> None:
        with self._lock:
            self._guard(fence)
            round_ = self._rounds.get(digest)
            if round_ is not None and round_.phase == before:
                self._rounds[digest] = replace(round_, phase=after)

    def accept(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch of the shuffler before."""
        content = hashlib.sha256(raw).digest()
        with self._lock:
            self._guard(fence)
            round_ = self._rounds.get(digest)
            if round_ is None or round_.accepted or round_.phase != "open":
                return round_ is not None and round_.accepted == content
            self._rounds[digest] = replace(round_, accepted=content, phase="closed")
            self._blobs[digest, "incoming"] = raw
            return True

    def incoming(self, digest: bytes) -> bytes:
        """Give the batch that was accepted."""
        return self._blob(digest, "incoming")

    def release(self, digest: bytes, batch: bytes, *, fence: int) -> None:
        """Keep the released batch, and forget what it was made of."""
        with self._lock:
            self._guard(fence)
            if self._phase(digest) == "closed":
                self._blobs[digest, "batch"] = batch
                self._wipe(digest, "released", waiting=True)

    def batch(self, digest: bytes) -> bytes:
        """Give the released batch."""
        return self._blob(digest, "batch")

    def forget(self, digest: bytes, *, fence: int) -> None:
        """Drop the batch."""
        with self._lock:
            self._guard(fence)
            self._rounds[digest] = replace(self._rounds[digest], waiting=False)
            self._blobs.pop((digest, "batch"), None)

    def abandon(self, digest: bytes, *, fence: int) -> None:
        """Forget everything of a round."""
        with self._lock:
            self._guard(fence)
            if self._phase(digest) in {"open", "closed"}:
                self._wipe(digest, "abandoned", waiting=False)

    def scrub(self) -> bool:
        """There is no disk."""
        return True

    def _phase(self, digest: bytes) -> str:
        return self._rounds[digest].phase if digest in self._rounds else "unknown"

    def _wipe(self, digest: bytes, phase: str, *, waiting: bool) -> None:
        blank = replace(self._rounds[digest], phase=phase, waiting=waiting, secret=bytes(32))
        self._rounds[digest] = blank
        self._parcels[digest] = {}
        self._blobs.pop((digest, "incoming"), None)

    def _blob(self, digest: bytes, kind: str) -> bytes:
        with self._lock:
            if (digest, kind) not in self._blobs:
                raise Misuse("there is no such batch: it was forgotten, or never came")
            return self._blobs[digest, kind]


class MemoryServer(_MemoryLease):
    """A `ServerStore` in dictionaries."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._rounds: dict[bytes, Sitting] = {}
        self._blobs: dict[tuple[bytes, str], bytes] = {}

    def propose(self, round_: Sitting, *, fence: int) -> Sitting:
        """Keep a proposal, or give the one of this name that is there."""
        with self._lock:
            self._guard(fence)
            known = [one for one in self._rounds.values() if one.name == round_.name]
            return known[0] if known else self._rounds.setdefault(round_.digest, round_)

    def agree(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms with all signatures."""
        with self._lock:
            self._guard(fence)
            if digest in self._rounds and self._rounds[digest].phase == "proposed":
                self._rounds[digest] = replace(
                    self._rounds[digest], signed=signed, phase="awaiting"
                )

    def rounds(self) -> list[Sitting]:
        """List all rounds."""
        with self._lock:
            return sorted(self._rounds.values(), key=lambda one: one.name)

    def receive(self, digest: bytes, raw: bytes, *, fence: int) -> bool:
        """Keep the batch; False if another one came first."""
        content = hashlib.sha256(raw).digest()
        with self._lock:
            self._guard(fence)
            known = self._rounds.get(digest)
            if known is None or known.batch:
                return known is not None and known.batch == content
            self._rounds[digest] = replace(known, batch=content, phase="batched")
            self._blobs[digest, "batch"] = raw
            return True

    def batch(self, digest: bytes) -> bytes:
        """Give the batch."""
        return self._blob(digest, "batch")

    def answer(self, digest: bytes, bulletin: bytes, *, outcome: str, fence: int) -> None:
        """Keep the bulletin and forget the batch."""
        with self._lock:
            self._guard(fence)
            known = self._rounds.get(digest)
            if known is not None and known.phase == "batched":
                self._rounds[digest] = replace(known, phase=outcome, outcome=outcome)
                self._blobs[digest, "bulletin"] = bulletin
                self._blobs.pop((digest, "batch"), None)

    def bulletin(self, digest: bytes) -> bytes:
        """Give the bulletin."""
        return self._blob(digest, "bulletin")

    def publish(self, digest: bytes, *, fence: int) -> None:
        """Remember that the board has the bulletin."""
        with self._lock:
            self._guard(fence)
            known = self._rounds.get(digest)
            if known is not None and known.phase in {"answered", "refused"}:
                self._rounds[digest] = replace(known, phase="published")

    def _blob(self, digest: bytes, kind: str) -> bytes:
        with self._lock:
            if (digest, kind) not in self._blobs:
                raise Misuse(f"there is no {kind} of this round here")
            return self._blobs[digest, kind]


class MemoryBoard(_MemoryLease):
    """A `BoardStore` in a list."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._rounds: dict[bytes, bytes] = {}
        self._log: list[Shown] = []

    def admit(self, digest: bytes, signed: bytes, *, fence: int) -> None:
        """Keep the terms of a round."""
        with self._lock:
            self._guard(fence)
            self._rounds.setdefault(digest, signed)

    def rounds(self) -> dict[bytes, bytes]:
        """Give the signed terms by digest."""
        with self._lock:
            return dict(self._rounds)

    def append(self, shown: Iterable[Shown], *, at: int, fence: int) -> None:
        """Show things at these places of the log."""
        with self._lock:
            self._guard(fence)
            if len(self._log) != at:
                raise Fenced(f"the log has {len(self._log)} places, not {at}")
            self._log.extend(shown)

    def history(self) -> list[Shown]:
        """Give everything shown, in order."""
        with self._lock:
            return list(self._log)
