"""`coatcheck tokens`: one-use tokens for people, and their hashes for the shuffler."""

import hashlib
from pathlib import Path
from typing import Annotated

from coatcheck.cli.files import write
from coatcheck.cli.options import WHOLE, command
from coatcheck.cli.output import hint
from coatcheck.entropy import system
from coatcheck.errors import Misuse

_MOST = 10_000_000


@command()
def tokens(
    count: Annotated[int, WHOLE],
    *,
    out: Annotated[Path, "The tokens, one per line; each is for one person (mode 0600)."],
    hashes: Annotated[Path, "Their hashes, which the shuffler's setting `tokens` names."],
) -> None:
    """Make COUNT one-use tokens; each admits one upload per round."""
    if not 1 <= count <= _MOST:
        raise Misuse(f"make 1 to {_MOST:,} tokens at once")
    source = system()
    made = [source.token(16).hex() for _ in range(count)]
    # In an order of their own: a place in this file says nothing about a place in the other.
    known = sorted(hashlib.sha256(token.encode()).hexdigest() for token in made)
    write(out, "".join(f"{token}\n" for token in made).encode(), secret=True)
    write(hashes, "".join(f"{one}\n" for one in known).encode())
    hint("whoever gives a token to a person can tell which upload is theirs: keep no list of whom")
