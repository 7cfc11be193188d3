r"""Places from people's own files: CSV with a header, or GeoJSON points, read strictly.

A trial, a demo or a prior starts here; no private value of a real round passes through this file. A
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from coatcheck.domains import Box, Domain, Floats, Product, Simple
from coatcheck.errors import Misuse

LATITUDES: Final = ("lat", "latitude")
LONGITUDES: Final = ("lon", "lng", "long", "longitude")
_MOST_BYTES: Final = 1 << 28
_RANGES: Final = (90, 180)

Row = tuple[str, dict[str, Any]]
"""Where a row is, for messages, and what it holds."""


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
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        raise Misuse(f"{path.name} is larger than 256 MB: take a sample of its rows")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Misuse(f"{path.name} is not UTF-8 text: save it as CSV or GeoJSON in UTF-8") from None
    return reader(text, source=path.name, columns=columns, group_by=group_by)


def parse_csv(
    text: str, *, source: str, columns: Sequence[str] = (), group_by: str | None = None
) -> Table:
    """Read places from CSV with a header; two columns are found by name unless given."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)

    def read() -> Iterator[Row]:
        for fields in rows:
            if fields and len(fields) != len(header):
                raise Misuse(
                    f"{source} line {rows.line_num} has {len(fields)} fields, the header has"
                    f" {len(header)}: correct the line"
                )
            if fields:
                yield (
                    f"{source} line {rows.line_num}, column",
                    dict(zip(header, fields, strict=True)),
                )

    try:
        header = [name.strip() for name in next(rows, [])]
        _check_header(header, source)
        axes = columns or _axes(header, source)
        for name in (*axes, *([group_by] if group_by else [])):
            if name not in header:
                raise Misuse(
                    f"{source} has no column {name!r}, its columns are {', '.join(header)}"
                )
        if len(axes) != 2:
            raise Misuse(f"--columns takes two names such as lat,lon, got {','.join(axes)!r}")
        return _table(read(), source=source, axes=axes, group_by=group_by)
    except csv.Error as error:
        raise Misuse(f"{source} line {rows.line_num} is not CSV: {error}") from None


class _Point(msgspec.Struct):
    type: Literal["Point"]
    coordinates: Annotated[list[float], msgspec.Meta(min_length=2)]


class _Feature(msgspec.Struct):
    geometry: _Point
    properties: dict[str, Any] | None = None


class _Collection(msgspec.Struct):
    features: list[msgspec.Raw]


def parse_geojson(
    text: str, *, source: str, columns: Sequence[str] = (), group_by: str | None = None
) -> Table:
    """Read the points of a GeoJSON FeatureCollection; a group is a property of a feature."""
    if columns:
        raise Misuse("--columns names columns of a CSV file; GeoJSON says where its points are")
    axes = (LATITUDES[-1], LONGITUDES[-1])

    def read() -> Iterator[Row]:
        for number, raw in enumerate(features, start=1):
            where = f"{source} feature {number}"
            try:
                feature = msgspec.json.decode(raw, type=_Feature)
            except msgspec.ValidationError as error:
                raise Misuse(f"{where} is no Point with [longitude, latitude]: {error}") from None
            place = dict(zip(axes, feature.geometry.coordinates[1::-1], strict=True))
            yield f"{where}, property", {**(feature.properties or {}), **place}

    try:
        features = msgspec.json.decode(text, type=_Collection).features
    except msgspec.DecodeError as error:
        raise Misuse(f"{source} is no FeatureCollection of GeoJSON: {error}") from None
    return _table(read(), source=source, axes=axes, group_by=group_by)


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
    if not re.search(r"[^\W\d_]", "".join(header)):
        raise Misuse(f"{source} has no header: its first line names the columns, such as lat,lon")
    if len(set(header)) != len(header):
        raise Misuse(f"{source} has two columns of the same name: rename one of them")


def _axes(header: Sequence[str], source: str) -> list[str]:
    """Find the two columns of a place by their names."""
    for axes in ((LATITUDES, LONGITUDES), (("x",), ("y",))):
        found = [[name for name in header if name.lower() in names] for names in axes]
        if all(len(matches) == 1 for matches in found):
            return [name for (name,) in found]
    raise Misuse(
        f"{source} has the columns {', '.join(header)}; which two are the place is not clear:"
        " name them by --columns, such as --columns lat,lon"
    )


def _table(rows: Iterable[Row], *, source: str, axes: Sequence[str], group_by: str | None) -> Table:
    """Read every row strictly; the first that is wrong is named."""
    degrees = axes[0].lower() in LATITUDES and axes[1].lower() in LONGITUDES
    values, labels = [], []
    for where, row in rows:
        place = [_number(row[name], f"{where} {name}") for name in axes]
        for number, name, most in zip(place, axes, _RANGES, strict=True):
            if degrees and abs(number) > most:
                raise Misuse(
                    f"{where} {name}: {number:g} is beyond ±{most} degrees; are latitude and"
                    " longitude swapped?"
                )
        values.append(place)
        if group_by is not None:
            labels.append(_label(row.get(group_by), f"{where} {group_by}"))
    if not values:
        raise Misuse(f"{source} holds no places")
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return Table(source, array, tuple(labels), degrees)


def _number(value: str | float, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Misuse(f"{where}: {value!r} is no number: correct it, or take the line out")
    return number


def _label(value: object, where: str) -> str:
    if isinstance(value, dict | list) or value is None or not str(value).strip():
        raise Misuse(f"{where} names no group: fill it in, or take the line out")
    return group_name(str(value))


# HOUSE-DOC domains.frames: "People's values from a pandas, polars or GeoPandas table, and the names of their rows.\n\nNone of the three is imported: a table is known by what it can do. Columns are found by name where\ntheir order could be mistaken, since a swapped latitude and longitude gives no error by itself.\n"
NAMES = ("name", "id")
"""The column that names the rows of a table without an index of its own."""


@dataclass(frozen=True)
class People:
    """The values of a group, one per person, and what each person is called.

    Attributes:
        rows: the values as the domain reads them.
        names: from the table's index or its column `name` or `id`; row numbers otherwise.
    """

    rows: Sequence[Any]
    names: tuple[Any, ...]


def read_people(given: Any, domain: Domain) -> People:
    """Read the values of a group: a table of the three kinds, or anything with one row each.

    A GeoDataFrame gives its points, in degrees as latitude and longitude. Of another table the
    columns are those of the domain: `lat` and `lon` of places in degrees, the fields of a product,
    else all columns in order. Columns that are too many or too few are a mistake, and it is told.
    """
    if not hasattr(given, "columns"):
        index = getattr(given, "index", None)  # a Series has one; of a list it is a method
        names = range(len(given)) if index is None or callable(index) else index
        return People(given.to_numpy() if hasattr(given, "to_numpy") else given, tuple(names))
    names, columns = _names(given)
    if not isinstance(domain, Product):
        return People(_values(given, columns, domain), names)
    parts = {
        name: _values(given, [name] if name in columns else columns, part)
        for name, part in domain.fields.items()
    }
    rows = zip(*parts.values(), strict=True)
    return People([dict(zip(parts, row, strict=True)) for row in rows], names)


def _names(table: Any) -> tuple[tuple[Any, ...], list[str]]:
    """Take the rows' names from the index or the column of names, and leave the other columns."""
    columns = [str(column) for column in table.columns]
    for name in NAMES:
        if name in columns:
            return tuple(table[name].to_numpy()), [column for column in columns if column != name]
    index = getattr(table, "index", None)
    return tuple(range(len(table)) if index is None else index), columns


def _values(table: Any, columns: Sequence[str], domain: Simple) -> Any:
    """Read the values of one field, a row each."""
    if hasattr(table, "crs") and isinstance(domain, Box) and domain.dimension == 2:
        return _points(table, domain)
    wanted: Sequence[str] = [f"column {number + 1}" for number in range(domain.dimension)]
    found = list(columns)
    if isinstance(domain, Box) and domain.degrees:
        wanted, axes = (LATITUDES[0], LONGITUDES[0]), (LATITUDES, LONGITUDES)
        found = [column for names in axes for column in columns if column.lower() in names]
    if len(found) != len(wanted):
        raise Misuse(
            f"the table has the columns {', '.join(columns)}, and the domain needs "
            f"{', '.join(wanted)}: select them, and rename them if need be"
        )
    arrays = [table[column].to_numpy() for column in found]
    return arrays[0] if len(arrays) == 1 else np.column_stack(arrays)


def _points(table: Any, domain: Box) -> Any:
    if not (table.geometry.geom_type == "Point").all():
        raise Misuse("every geometry must be a point: take .centroid, or take the others out")
    points = table.geometry
    if domain.degrees:
        if table.crs is None:
            raise Misuse("the GeoDataFrame has no crs: set_crs(4326) if its points are in degrees")
        points = points.to_crs(4326)
        return np.column_stack([points.y, points.x])
    return np.column_stack([points.x, points.y])
