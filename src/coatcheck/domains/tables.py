r"""Readers of values from CSV, GeoJSON and dataframes.

`read_places` reads files of places, strictly, for trials, demos and priors; no private value of a
real round passes through it. An unreadable value is an error with its line and column. No row is
skipped: the promise is computed for the number of rows.

`read_people` reads the values of a group from a pandas, polars or GeoPandas table, with the names
of its rows. It imports none of the three, and recognizes a table by its methods. It finds columns
by name where their order could be mistaken: swapped latitudes and longitudes raise no error.

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
_MAX_BYTES: Final = 1 << 28
_RANGES: Final = (90, 180)

Row = tuple[str, dict[str, Any]]
"""The place of a row, for messages, and its content."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a file: the place and the group of each person.

    Attributes:
        source: the file's name, for messages.
        values: shape (n, 2): latitude and longitude, or two coordinates of a plane.
        labels: the group of each row; empty if the file names none.
        degrees: whether values are latitudes and longitudes, so that distances are in metres.
    """

    source: str
    values: Floats
    labels: tuple[str, ...]
    degrees: bool

    def groups(self) -> dict[str, Floats]:
        """Return the rows of each group, in the order in which the file names the groups."""
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
        raise Misuse(
            f"{path.name} must end in .csv, .geojson or .json; save the points as one of them"
        )
    if path.exists() and path.stat().st_size > _MAX_BYTES:
        raise Misuse(f"{path.name} is larger than 256 MB, the limit; take a sample of its rows")
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
    """Read places from CSV with a header; find the two columns by name unless given."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)

    def read() -> Iterator[Row]:
        for fields in rows:
            if fields and len(fields) != len(header):
                raise Misuse(
                    f"{source} line {rows.line_num} has {len(fields)} fields, but the header has"
                    f" {len(header)}; correct the line"
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
                    f"{source} has no column {name!r}; its columns are {', '.join(header)}"
                )
        if len(axes) != 2:
            raise Misuse(
                f"--columns must name two columns, such as lat,lon, got {','.join(axes)!r}"
            )
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
        raise Misuse("--columns is for CSV files only; leave it out for GeoJSON")
    axes = (LATITUDES[-1], LONGITUDES[-1])

    def read() -> Iterator[Row]:
        for number, raw in enumerate(features, start=1):
            where = f"{source} feature {number}"
            try:
                feature = msgspec.json.decode(raw, type=_Feature)
            except msgspec.ValidationError as error:
                raise Misuse(
                    f"{where} must be a Point with [longitude, latitude]: {error}"
                ) from None
            place = dict(zip(axes, feature.geometry.coordinates[1::-1], strict=True))
            yield f"{where}, property", {**(feature.properties or {}), **place}

    try:
        features = msgspec.json.decode(text, type=_Collection).features
    except msgspec.DecodeError as error:
        raise Misuse(f"{source} must be a GeoJSON FeatureCollection: {error}") from None
    return _table(read(), source=source, axes=axes, group_by=group_by)


def group_name(label: str) -> str:
    """Return a label in the spelling of group names in terms: lower case, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:32].strip("-")
    if not name:
        raise Misuse(f"{label!r} cannot be the name of a group; use letters and digits")
    return name


def _check_header(header: Sequence[str], source: str) -> None:
    if not header:
        raise Misuse(f"{source} is empty; its first line must name the columns, such as lat,lon")
    if len(header) == 1 and ";" in header[0]:
        raise Misuse(f"{source} is separated by semicolons; save it with commas")
    if not re.search(r"[^\W\d_]", "".join(header)):
        raise Misuse(
            f"{source} has no header; its first line must name the columns, such as lat,lon"
        )
    if len(set(header)) != len(header):
        raise Misuse(f"{source} has two columns of the same name; rename one of them")


def _axes(header: Sequence[str], source: str) -> list[str]:
    """Find the two columns of a place by their names."""
    for axes in ((LATITUDES, LONGITUDES), (("x",), ("y",))):
        columns = [[name for name in header if name.lower() in names] for names in axes]
        if all(len(matches) == 1 for matches in columns):
            return [name for (name,) in columns]
    raise Misuse(
        f"{source} has the columns {', '.join(header)}, of which no two are clearly the place;"
        " name them, such as --columns lat,lon"
    )


def _table(rows: Iterable[Row], *, source: str, axes: Sequence[str], group_by: str | None) -> Table:
    """Read every row strictly; raise an error with the place of the first wrong value."""
    degrees = axes[0].lower() in LATITUDES and axes[1].lower() in LONGITUDES
    values, labels = [], []
    for where, row in rows:
        place = [_number(row[name], f"{where} {name}") for name in axes]
        for number, name, limit in zip(place, axes, _RANGES, strict=True):
            if degrees and abs(number) > limit:
                raise Misuse(
                    f"{where} {name}: {number:g} is beyond ±{limit} degrees; are latitude and"
                    " longitude swapped?"
                )
        values.append(place)
        if group_by is not None:
            labels.append(_label(row.get(group_by), f"{where} {group_by}"))
    if not values:
        raise Misuse(f"{source} holds no places; it needs at least one row")
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return Table(source, array, tuple(labels), degrees)


def _number(value: str | float, where: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Misuse(f"{where}: {value!r} is not a number; correct it, or remove the line")
    return number


def _label(value: object, where: str) -> str:
    if isinstance(value, dict | list) or value is None or not str(value).strip():
        raise Misuse(f"{where} names no group; fill it in, or remove the line")
    return group_name(str(value))


NAMES = ("name", "id")
"""Columns that name the rows of a table without an index."""


@dataclass(frozen=True)
class People:
    """The values of a group, one per person, and their names.

    Attributes:
        rows: the values, for `snap` of the domain.
        names: from the table's index or its column `name` or `id`; otherwise row numbers.
    """

    rows: Sequence[Any]
    names: tuple[Any, ...]


def read_people(values: Any, domain: Domain) -> People:
    """Read the values of a group: a dataframe, or anything with one row per person.

    A GeoDataFrame gives its points, in degrees as latitude and longitude. Other tables give the
    columns of the domain: `lat` and `lon` for places in degrees, the fields of a product, otherwise
    all columns in order. Too many or too few columns are an error.
    """
    if not hasattr(values, "columns"):
        index = getattr(values, "index", None)  # a Series has one; of a list it is a method
        names = range(len(values)) if index is None or callable(index) else index
        return People(values.to_numpy() if hasattr(values, "to_numpy") else values, tuple(names))
    names, columns = _names(values)
    if not isinstance(domain, Product):
        return People(_values(values, columns, domain), names)
    parts = {
        name: _values(values, [name] if name in columns else columns, part)
        for name, part in domain.fields.items()
    }
    rows = zip(*parts.values(), strict=True)
    return People([dict(zip(parts, row, strict=True)) for row in rows], names)


def _names(table: Any) -> tuple[tuple[Any, ...], list[str]]:
    """Return the rows' names, from a column of names or the index, and the other columns."""
    columns = [str(column) for column in table.columns]
    for name in NAMES:
        if name in columns:
            return tuple(table[name].to_numpy()), [column for column in columns if column != name]
    index = getattr(table, "index", None)
    return tuple(range(len(table)) if index is None else index), columns


def _values(table: Any, columns: Sequence[str], domain: Simple) -> Any:
    """Return the values of one field, one row per person."""
    if hasattr(table, "crs") and isinstance(domain, Box) and domain.dimension == 2:
        return _points(table, domain)
    wanted: Sequence[str] = [f"column {number + 1}" for number in range(domain.dimension)]
    chosen = list(columns)
    if isinstance(domain, Box) and domain.degrees:
        wanted, axes = (LATITUDES[0], LONGITUDES[0]), (LATITUDES, LONGITUDES)
        chosen = [column for names in axes for column in columns if column.lower() in names]
    if len(chosen) != len(wanted):
        raise Misuse(
            f"the table has the columns {', '.join(columns)}, but the domain needs "
            f"{', '.join(wanted)}; select these columns, and rename them if necessary"
        )
    arrays = [table[column].to_numpy() for column in chosen]
    return arrays[0] if len(arrays) == 1 else np.column_stack(arrays)


def _points(table: Any, domain: Box) -> Any:
    if not (table.geometry.geom_type == "Point").all():
        raise Misuse("every geometry must be a point; use .centroid, or remove the others")
    points = table.geometry
    if domain.degrees:
        if table.crs is None:
            raise Misuse(
                "the GeoDataFrame has no crs; call set_crs(4326) if its points are in degrees"
            )
        points = points.to_crs(4326)
        return np.column_stack([points.y, points.x])
    return np.column_stack([points.x, points.y])
