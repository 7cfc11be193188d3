"""A draft: what an organizer writes by hand, and the terms' numbers computed from it."""

from pathlib import Path
from typing import Any

import msgspec

from coatcheck.cli.files import read
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import Draft, read_plan
from coatcheck.protocol.suites import Suite


def read_draft(path: Path, suite: Suite) -> Draft:
    """Read a draft and compute its sizes, exposure and promises."""
    try:
        plan = msgspec.json.decode(read(path), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no JSON object: {error}") from None
    return read_plan(plan, suite)
