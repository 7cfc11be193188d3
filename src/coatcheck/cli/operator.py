"""`coatcheck operator`: a token for somebody who operates a service."""

import re
from pathlib import Path
from typing import Annotated

from coatcheck.cli.files import write
from coatcheck.cli.options import command
from coatcheck.cli.output import hint
from coatcheck.entropy import system
from coatcheck.errors import Misuse


@command()
def operator(name: str, *, out: Annotated[Path, "The token, for you alone (mode 0600)."]) -> None:
    """Make a token for the operator NAME; the log of a service names who opened or ended a round.

    The file that a service's setting `admin_token` names has the lines of all its operators.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        raise Misuse(f"an operator's name is lower-case letters, digits and -, not {name!r}")
    write(out, f"{name}.{system().token(24).hex()}\n".encode(), secret=True)
    hint("add this line to the file that `admin_token` names, and restart the service")
