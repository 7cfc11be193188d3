"""How vectors of mechanisms are read: parameters in, what a report can be out."""

from typing import Any

import numpy as np

from coatcheck.domains import Points
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.randomizers import CodebookResponse, GridResponse, from_params

Case = dict[str, Any]


def mechanism(case: Case) -> Case:
    """Make a mechanism of its parameters, and say which reports are near each point."""
    made: Any = from_params(case["input"]["params"])
    points = np.array(case["input"]["points"], dtype=np.int64)
    low, high, near = made.low.tolist(), made.high.tolist(), near_reports(made, points).tolist()
    return {"heads": str(made.heads), "low": low, "high": high, "near": near}


def coin(case: Case) -> Case:
    """Make a coin before a mechanism: how often it speaks, and the bounds of what is sent."""
    made: Any = from_params(case["input"])
    size = PayloadFormat.between(made.low, made.high).size
    low, high = made.low.tolist(), made.high.tolist()
    return {"heads": str(made.heads), "low": low, "high": high, "payload": size}


def fields(case: Case) -> Case:
    """Make a mechanism of several fields: each one's coin, near reports, and the whole's bounds."""
    made: Any = from_params(case["input"]["params"])
    points = np.array(case["input"]["points"], dtype=np.int64)
    columns = made.domain.columns
    near = [
        near_reports(part, points[:, columns[name]]).tolist() for name, part in made.parts.items()
    ]
    return {
        "heads": [str(part.heads) for part in made.parts.values()],
        "low": made.low.tolist(),
        "high": made.high.tolist(),
        "payload": PayloadFormat.between(made.low, made.high).size,
        "near": [list(row) for row in zip(*near, strict=True)],
    }


def near_reports(made: Any, points: Points) -> Points:
    """Return the cells, the closest points or the centers of the caps of lattice points."""
    if isinstance(made, GridResponse):
        return made._cells_of(points)
    found: Points = (
        made._nearest(points) if isinstance(made, CodebookResponse) else made._centers(points)
    )
    return found


def directions(case: Case) -> Case:
    """Say which codewords are near each point in some turns, the nearest first."""
    made: Any = from_params(case["input"]["params"])
    points = np.array(case["input"]["points"], dtype=np.int64)
    near = []
    for turn in case["input"]["turns"]:
        found = made._codewords.nearest(points, np.full(len(points), turn), made.closest)
        near.append([sorted(row) for _, rows in found for row in rows.tolist()])
    return {"heads": str(made.heads), "high": made.high.tolist(), "near": near}
