"""People's values from a pandas, polars or GeoPandas table, and the names of their rows.

None of the three is imported: a table is known by what it can do. Columns are found by name where
their order could be mistaken, since a swapped latitude and longitude gives no error by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coatcheck.domains import Box, Domain, Product, Simple
from coatcheck.domains.places import LATITUDES, LONGITUDES
from coatcheck.errors import Misuse

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
