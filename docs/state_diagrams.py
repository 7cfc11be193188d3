"""Diagrams of the phases of a round, drawn from the transition tables that the roles execute.

`python docs/state_diagrams.py` writes docs/images/shuffler-phases.svg and server-phases.svg. The
tables decide every box and arrow; only the places of the boxes are given here. A test compares the
files with what this program would write.
"""

import math
import sys
from html import escape
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).parent / "images"
COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 240, 130, 120, 40, 30

# The column and the row of each phase.
PLACES: Final[dict[str, dict[str, tuple[float, float]]]] = {
    "shuffler": {
        "open": (0, 0),
        "closed": (1, 0),
        "released": (2, 0),
        "delivered": (3, 0),
        "abandoned": (1, 1),
        "ended": (2, 1.4),
    },
    "server": {
        "proposed": (0, 1),
        "lapsed": (0, 2),
        "awaiting": (0.9, 1),
        "batched": (1.8, 1),
        "answered": (2.8, 0),
        "refused": (3.4, 1),
        "abandoned": (2.8, 2),
        "published": (4.6, 0.3),
        "overtaken": (4.6, 1.7),
    },
}

STYLE: Final = (
    "<style>svg{color-scheme:light dark;font:14px sans-serif}"
    "rect{fill:#eef3fb;stroke:#33507d;stroke-width:1.5}.final{stroke-width:4}"
    "path{fill:none;stroke:#666;stroke-width:1.5}text{text-anchor:middle;fill:#1a1a1a}"
    ".arrow{fill:#666;stroke:none}.label{font-size:12px;paint-order:stroke;stroke:#fff;"
    "stroke-width:4px;fill:#333}</style>"
)


NAMESPACE: Final = "http://www.w3.org/2000/svg"
BOX: Final = f'width="{WIDTH}" height="{HEIGHT}" rx="8"'
TIP: Final = (
    '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path class="arrow" d="M0 0L10 5L0 10z"/></marker>'
)


def drawn(role: str, transitions: Any) -> str:
    """Return the diagram of a role as SVG."""
    places = PLACES[role]
    phases = {phase.value for phase in transitions.phases}
    if phases != places.keys():
        raise SystemExit(f"PLACES of the {role} needs exactly these phases: {sorted(phases)}")
    arrows: dict[tuple[str, str], list[str]] = {}
    for before, name, after in transitions:
        arrows.setdefault((before.value, after.value), []).append(name)
    columns = max(column for column, _ in places.values()) + 1
    rows = max(row for _, row in places.values()) + 1
    size = ((columns - 1) * COLUMN + WIDTH + 2 * MARGIN, (rows - 1) * ROW + HEIGHT + 80)
    lines = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" role="img">',
        f"<title>Phases of a round at the {role}</title>",
        STYLE,
        '<rect x="0" y="0" width="100%" height="100%" style="fill:#fff;stroke:none"/>',
        TIP,
    ]
    labels = []
    for (before, after), names in arrows.items():
        path, label = _arrow(places[before], places[after], back=(after, before) in arrows)
        lines.append(f'<path d="{path}" marker-end="url(#tip)"/>')
        text = escape(", ".join(names))
        labels.append(f'<text class="label" x="{label[0]:.0f}" y="{label[1]:.0f}">{text}</text>')
    for name, place in places.items():
        x, y = _center(place)
        last = not any(before == name for before, _ in arrows)
        kind = ' class="final"' if last else ""
        lines += [
            f'<rect{kind} x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" {BOX}/>',
            f'<text x="{x:.0f}" y="{y + 5:.0f}">{name}</text>',
        ]
    return "\n".join([*lines, *labels, "</svg>", ""])


def _center(place: tuple[float, float]) -> tuple[float, float]:
    column, row = place
    return MARGIN + WIDTH / 2 + column * COLUMN, 70 + row * ROW


def _arrow(
    start: tuple[float, float], end: tuple[float, float], *, back: bool
) -> tuple[str, tuple[float, float]]:
    """Return the path of an arrow and the place of its label; opposite arrows keep apart."""
    (x, y), (u, v) = _center(start), _center(end)
    if start == end:  # a loop above the box
        top = y - HEIGHT / 2
        path = f"M{x - 25:.0f} {top:.0f}C{x - 40:.0f} {top - 45:.0f} {x + 40:.0f} {top - 45:.0f} "
        return f"{path}{x + 25:.0f} {top:.0f}", (x, top - 38)
    if back:
        shift = 10 if u > x else -10
        y, v = y - shift, v - shift
    (x, y), (u, v) = _border((x, y), (u, v)), _border((u, v), (x, y))
    path = f"M{x:.0f} {y:.0f}L{u:.0f} {v:.0f}"
    if y == v:  # beside a level line
        return path, ((x + u) / 2, y + (16 if u < x else -6))
    return path, (x + 0.4 * (u - x), y + 0.4 * (v - y) + 4)  # on a steep one


def _border(center: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return where the line to another center leaves the box around this one."""
    across, down = other[0] - center[0], other[1] - center[1]
    share = min(
        WIDTH / 2 / abs(across) if across else math.inf,
        HEIGHT / 2 / abs(down) if down else math.inf,
    )
    return center[0] + share * across, center[1] + share * down


def diagrams() -> dict[str, str]:
    """Return the text of every diagram by the name of its file."""
    from coatcheck.protocol.state_machine import (  # noqa: PLC0415 - conf.py sets the path first
        SERVER_TRANSITIONS,
        SHUFFLER_TRANSITIONS,
    )

    tables = {"shuffler": SHUFFLER_TRANSITIONS, "server": SERVER_TRANSITIONS}
    return {f"{role}-phases.svg": drawn(role, table) for role, table in tables.items()}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    for name, text in diagrams().items():
        (IMAGES / name).write_text(text, encoding="utf-8")
