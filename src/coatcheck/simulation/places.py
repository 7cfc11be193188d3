r"""Places from people's own files: CSV with a header, or GeoJSON points, read strictly.

A trial or a demo starts here; no private value of a real round passes through this file. A
value that cannot be read is an error that names its line and column, never a row left out: a
crowd that silently lost people would be told a promise for more people than it has.

    >>> text = "lat,lon,side\n31.2,121.4,rider\n31.3,121.5,driver\n"
    >>> table = parse_csv(text, source="taxi.csv", group_by="side")
    >>> {name: len(rows) for name, rows in table.groups().items()}
    {'rider': 1, 'driver': 1}
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from coatcheck.errors import Misuse

LATITUDES: Final = ("lat", "latitude")
LONGITUDES: Final = ("lon", "lng", "long", "longitude")
_PLANE: Final = (("x",), ("y",))
_MOST_BYTES: Final = 1 << 28
_RANGES: Final = (90.0, 180.0)


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file: where people are, and the group that each is in.

    Attributes:
        source: the file's name, for messages.
        values: shape (n, 2): latitude and longitude, or two columns of the plane.
        labels: the group of each row; empty if the file does not say.
        degrees: whether values are latitudes and longitudes, so that distances are in metres.
    """

    source: str
    values: Floats
    labels: tuple[str, ...]
    degrees: bool

    def groups(self) -> dict[str, Floats]:
        """Return the rows of each group, groups in the order in which the file names them."""
        if not self.labels:
            return {group_name(Path(self.source).stem): self.values}
        labels = np.array(self.labels)
        return {name: self.values[labels == name] for name in dict.fromkeys(self.labels)}


def read_places(path: Path, *, columns: Sequence[str] = (), group_by: str | None = None) -> Table:
    """Read a `.csv`, `.geojson` or `.json` file of places."""
    reader = {".csv": parse_csv, ".geojson": parse_geojson, ".json": parse_geojson}.get(
        path.suffix.lower()
    )
    if reader is None:
        raise Misuse(f"{path.name} is neither .csv nor .geojson: save the points as one of them")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Misuse(f"{path.name} is larger than 256 MB: take a sample of its rows")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise Misuse(f"there is no file {path}: check the path") from None
    except UnicodeDecodeError:
        raise Misuse(f"{path.name} is not UTF-8 text: save it as CSV or GeoJSON in UTF-8") from None
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}") from None
    return reader(text, source=path.name, columns=columns, group_by=group_by)


def parse_csv(
    text: str, *, source: str, columns: Sequence[str] = (), group_by: str | None = None
) -> Table:
    """Read places from CSV with a header; two columns are found by name unless given."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(rows, [])]
        _check_header(header, source)
        axes, degrees = _axes(header, columns, source)
        by = None if group_by is None else _column(header, group_by, source)
        values, labels = [], []
        for fields in rows:
            if not fields:
                continue
            where = f"{source} line {rows.line_num}"
            if len(fields) != len(header):
                raise Misuse(
                    f"{where} has {len(fields)} fields, the header has {len(header)}: mend the line"
                )
            values.append([_number(fields[i], f"{where}, column {header[i]}") for i in axes])
            if by is not None:
                labels.append(_label(fields[by], f"{where}, column {header[by]}"))
    except csv.Error as error:
        raise Misuse(f"{source} line {rows.line_num} is not CSV: {error}") from None
    names = [header[i] for i in axes]
    return _table(values, labels, source=source, names=names, degrees=degrees)


def parse_geojson(
    text: str, *, source: str, columns: Sequence[str] = (), group_by: str | None = None
) -> Table:
    """Read the points of a GeoJSON FeatureCollection; a group is a property of a feature."""
    if columns:
        raise Misuse("--columns names columns of a CSV file; GeoJSON says where its points are")
    try:
        document = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise Misuse(f"{source} is not JSON: {error}") from None
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list):
        raise Misuse(f"{source} is no FeatureCollection: export the points as GeoJSON features")
    values, labels = [], []
    for number, feature in enumerate(features, start=1):
        where = f"{source} feature {number}"
        longitude, latitude = _point(feature, where)
        values.append([latitude, longitude])
        if group_by is not None:
            labels.append(_property(feature, group_by, where))
    return _table(
        values, labels, source=source, names=("latitude", "longitude"), degrees=True, unit="feature"
    )


def group_name(label: str) -> str:
    """Return a label as terms spell the names of groups: lower case, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:32].strip("-")
    if not name:
        raise Misuse(f"{label!r} cannot be the name of a group: use letters and digits")
    return name


def _check_header(header: Sequence[str], source: str) -> None:
    if not header:
        raise Misuse(f"{source} is empty: its first line names the columns, such as lat,lon")
    if len(header) == 1 and ";" in header[0]:
        raise Misuse(f"{source} is separated by semicolons: save it with commas")
    if all(_is_number(name) for name in header):
        raise Misuse(f"{source} has no header: its first line names the columns, such as lat,lon")
    if len(set(header)) != len(header):
        raise Misuse(f"{source} has two columns of the same name: rename one of them")


def _axes(header: Sequence[str], columns: Sequence[str], source: str) -> tuple[list[int], bool]:
    """Find the two columns, and say whether they are degrees."""
    if columns:
        if len(columns) != 2:
            raise Misuse(f"--columns takes two names such as lat,lon, got {','.join(columns)!r}")
        axes = [_column(header, name, source) for name in columns]
        names = [name.strip().lower() for name in columns]
        return axes, names[0] in LATITUDES and names[1] in LONGITUDES
    lower = [name.lower() for name in header]
    for first, second in ((LATITUDES, LONGITUDES), _PLANE):
        found = [[i for i, name in enumerate(lower) if name in names] for names in (first, second)]
        if all(len(matches) == 1 for matches in found):
            return [found[0][0], found[1][0]], first is LATITUDES
    raise Misuse(
        f"{source} has the columns {', '.join(header)}; which two are the place is not clear:"
        " name them by --columns, such as --columns lat,lon"
    )


def _column(header: Sequence[str], name: str, source: str) -> int:
    if name not in header:
        raise Misuse(f"{source} has no column {name!r}, its columns are {', '.join(header)}")
    return list(header).index(name)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, where: str) -> float:
    if not text.strip():
        raise Misuse(f"{where} is empty: fill it in, or take the line out")
    try:
        number = float(text)
    except ValueError:
        raise Misuse(f"{where}: {text!r} is no number") from None
    if not math.isfinite(number):
        raise Misuse(f"{where}: {text!r} is no place: fill it in, or take the line out")
    return number


def _label(text: str, where: str) -> str:
    if not text.strip():
        raise Misuse(f"{where} names no group: fill it in, or take the line out")
    return group_name(text)


def _point(feature: Any, where: str) -> tuple[float, float]:
    geometry = feature.get("geometry") if isinstance(feature, Mapping) else None
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if not isinstance(geometry, Mapping) or kind != "Point":
        raise Misuse(f"{where} is a {kind or 'feature without geometry'}, not a Point")
    place = geometry.get("coordinates")
    if (
        not isinstance(place, list)
        or len(place) < 2
        or any(isinstance(x, bool) or not isinstance(x, int | float) for x in place[:2])
    ):
        raise Misuse(f"{where} has the coordinates {place!r}; a point has [longitude, latitude]")
    return float(place[0]), float(place[1])


def _property(feature: Mapping[str, Any], name: str, where: str) -> str:
    properties = feature.get("properties")
    value = properties.get(name) if isinstance(properties, Mapping) else None
    if value is None or isinstance(value, dict | list):
        raise Misuse(f"{where} has no property {name!r} that could name its group")
    return _label(str(value), f"{where}, property {name}")


def _table(
    values: list[list[float]],
    labels: list[str],
    *,
    source: str,
    names: Sequence[str],
    degrees: bool,
    unit: str = "row",
) -> Table:
    if not values:
        raise Misuse(f"{source} holds no places")
    array = np.array(values, dtype=np.float64)
    if degrees:
        beyond = np.argwhere(np.abs(array) > _RANGES)
        for row, axis in beyond[:1]:
            raise Misuse(
                f"{source} {unit} {row + 1}, {names[axis]}: {array[row, axis]:g} is beyond"
                f" ±{_RANGES[axis]:g} degrees; are latitude and longitude swapped?"
            )
    array.setflags(write=False)
    return Table(source, array, tuple(labels), degrees)
