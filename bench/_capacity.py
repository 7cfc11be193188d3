"""Cores, disk and network for a crowd per hour, computed from figures measured per report."""

from dataclasses import dataclass
from typing import Final

from bench import Figure
from coatcheck.protocol.ticket import RECEIPT_SIZE

PEOPLE: Final = 1e8
HOUR: Final = 3600.0
UPLOAD: Final = 184
ITEM: Final = 120
ENTRY: Final = 194
"""Bytes of an upload, of an item of the batch and of an entry: two axes, one shuffler, partners."""
WIRE: Final = 400
"""Bytes of headers and packets around one upload and its receipt, about."""
INTAKE: Final = 1.1e-4
"""CPU seconds of an upload at a shuffler and its database: `python -m bench services`."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds of CPU by step, and bytes on the disk by role, per report."""

    cpu: dict[str, float]
    disk: dict[str, float]


def capacity(of: Measured, people: float = PEOPLE) -> list[Figure]:
    """Compute the resources for a number of people per hour, if every machine is always busy."""
    rate = people / HOUR
    shuffler, server = of.cpu["release"], of.cpu["answer"]
    cores = {"intake": INTAKE, "shuffler": shuffler, "server": server}
    network = {
        "into shufflers": UPLOAD + WIRE,
        "out to people (receipts)": RECEIPT_SIZE + WIRE,
        "shuffler to server": ITEM,
        "server to board": ENTRY,
    }
    return [
        *(
            Figure(what=f"1e8 per hour: cores, {name}", value=rate * seconds, unit="")
            for name, seconds in cores.items()
        ),
        *(
            Figure(what=f"1e8 per hour: {name}", value=rate * size * 8 / 1e9, unit="Gb/s")
            for name, size in network.items()
        ),
        *(
            Figure(what=f"1e8 per hour: disk, {name[:-6]}", value=people * size / 1e12, unit="TB")
            for name, size in of.disk.items()
        ),
    ]
