"""Make every vector again: `python tests/vectors/make.py`.

All is deterministic: seeds are a byte repeated, and seals are made by pyhpke, an independent
implementation, with fixed ephemeral keys. The files are reviewed as a diff when they change.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from vectors import (
    admission,
    basics,
    boards,
    examined,
    mechanisms,
    records,
    relayed,
    settled,
    traps,
    watched,
)
from vectors.kinds import ALICE, BOARD, BOB, HERE, SERVER, SHUFFLER

PARTS = {
    "terms": basics.terms,
    "keys": basics.keys,
    "bindings": basics.bindings,
    "payloads": basics.payloads,
    "mechanisms": mechanisms.mechanisms,
    "laws": examined.laws,
    "promises": examined.promises,
    "exposure": examined.exposure,
    "merkle": basics.merkle,
    "uploads": records.uploads,
    "batches": records.batches,
    "traps": traps.cases,
    "answers": records.answers,
    "boards": boards.boards,
    "watched": watched.cases,
    "relayed": relayed.cases,
    "settling": settled.cases,
    "admission": admission.cases,
}
ABOUT = (
    "SPEC.md, section 14; made by tests/vectors/make.py; the seed of a party is a byte 32 times:"
    f" server {SERVER}, shuffler {SHUFFLER}, board {BOARD}, Alice {ALICE}, Bob {BOB}"
)


def text(name: str) -> str:
    """Return a file of vectors as it should be."""
    return json.dumps({"about": ABOUT, "cases": PARTS[name]()}, indent=1) + "\n"


def main() -> None:
    """Write every file; the terms come first, because all others belong to them."""
    for name in PARTS:
        (HERE / f"{name}.json").write_text(text(name))


if __name__ == "__main__":
    main()
