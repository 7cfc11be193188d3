"""A draft: what an organizer writes by hand, and the terms' numbers computed from it."""

from pathlib import Path
from typing import Any

import msgspec

from coatcheck.cli.files import read
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import Draft
from coatcheck.protocol.drafting import read_draft as read_plain


def read_draft(path: Path) -> Draft:
    """Read a draft from its file."""
    try:
        plain = msgspec.json.decode(read(path), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no JSON object: {error}") from None
    return read_plain(plain)
