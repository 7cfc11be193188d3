"""Files of places: accepted formats, and errors for all others."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domains.tables import group_name, parse_csv, parse_geojson, read_places
from coatcheck.errors import Misuse

DEGREES = st.tuples(
    st.floats(-90, 90, allow_nan=False, width=32), st.floats(-180, 180, allow_nan=False, width=32)
)


def collection(*points: tuple[float, float], role: str = "rider") -> str:
    """Write (latitude, longitude) as GeoJSON, which has the longitude first."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [lon, lat]},
            "properties": {"role": role},
        }
        for lat, lon in points
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


@given(points=st.lists(DEGREES, min_size=1, max_size=20))
def test_csv_and_geojson_of_the_same_points_are_the_same_table(
    points: list[tuple[float, float]],
) -> None:
    """Points round-trip, latitude first whatever the file's order."""
    text = "lon,name,lat\n" + "".join(f"{lon!r},someone,{lat!r}\n" for lat, lon in points)
    table = parse_csv(text, source="a.csv")
    other = parse_geojson(collection(*points), source="a.geojson")
    assert table.degrees
    assert other.degrees
    assert table.values.tolist() == other.values.tolist() == [list(point) for point in points]


def test_a_byte_order_mark_spaces_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    """Spreadsheets write them."""
    path = tmp_path / "riders.csv"
    path.write_bytes(b"\xef\xbb\xbf Latitude , LNG \r\n31.2, 121.4\r\n\r\n31.3,121.5\r\n")
    table = read_places(path)
    assert table.degrees
    assert table.groups()["riders"].tolist() == [[31.2, 121.4], [31.3, 121.5]]


def test_groups_keep_their_rows_and_the_order_of_the_file() -> None:
    """A column's labels become names that terms accept."""
    text = "x,y,Side\n1,2,Night Driver\n3,4,rider\n5,6,night driver\n"
    table = parse_csv(text, source="a.csv", group_by="Side")
    assert not table.degrees
    assert {name: rows.tolist() for name, rows in table.groups().items()} == {
        "night-driver": [[1.0, 2.0], [5.0, 6.0]],
        "rider": [[3.0, 4.0]],
    }


def test_a_table_cannot_be_changed() -> None:
    """Arrays that are kept are read-only."""
    table = parse_csv("x,y\n1,2\n", source="a.csv")
    with pytest.raises(ValueError, match="read-only"):
        table.values[0, 0] = 5.0


def test_named_columns_are_degrees_only_by_name() -> None:
    """Columns of a plane stay in their own unit."""
    text = "lat,lon,px,py\n31.2,121.4,7,8\n"
    assert parse_csv(text, source="a.csv", columns=("lat", "lon")).degrees
    table = parse_csv(text, source="a.csv", columns=("px", "py"))
    assert not table.degrees
    assert np.array_equal(table.values, [[7.0, 8.0]])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a.csv is empty; its first line must name the columns"),
        ("31.2,121.4\n31.3,121.5\n", "a.csv has no header"),
        ("lat;lon\n31,2;121,4\n", "separated by semicolons; save it with commas"),
        ("lat,lon\n", "a.csv holds no places"),
        ("lat,lat\n1,2\n", "two columns of the same name"),
        ("a,b\n1,2\n", "name them, such as --columns"),
        ("lat,latitude,lon\n1,2,3\n", "name them, such as --columns"),
        ("lat,lon\n31.2,121.4\n31.3\n", "a.csv line 3 has 1 fields, but the header has 2"),
        ("lat,lon\n31.2,north\n", "a.csv line 2, column lon: 'north' is not a number"),
        ("lat,lon\n31.2,\n", "a.csv line 2, column lon: '' is not a number"),
        ("lat,lon\n31.2,nan\n", "a.csv line 2, column lon: 'nan' is not a number"),
        ("lat,lon\n31.2,inf\n", "'inf' is not a number"),
        ("lat,lon\n31.2,1e999\n", "'1e999' is not a number"),
        (
            "lat,lon\n121.4,31.2\n",
            "a.csv line 2, column lat: 121.4 is beyond ±90 degrees; are latitude",
        ),
        ('lat,lon\n"31.2,121.4\n', "is not CSV"),
    ],
)
def test_a_bad_csv_is_refused_by_line_and_column(text: str, sentence: str) -> None:
    """The error names the place and the remedy."""
    with pytest.raises(Misuse) as caught:
        parse_csv(text, source="a.csv")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "must be a GeoJSON FeatureCollection"),
        ("[]", "must be a GeoJSON FeatureCollection"),
        ('{"type": "Feature"}', "must be a GeoJSON FeatureCollection"),
        ('{"features": []}', "holds no places"),
        (
            '{"features": [7]}',
            "feature 1 must be a Point with [longitude, latitude]: Expected `object`",
        ),
        (
            '{"features": [{"geometry": {"type": "Polygon"}}]}',
            "feature 1 must be a Point with [longitude, latitude]: Invalid enum value 'Polygon'",
        ),
        (
            '{"features": [{"geometry": {"type": "Point", "coordinates": ["a", "b"]}}]}',
            "feature 1 must be a Point with [longitude, latitude]",
        ),
        (
            '{"features": [{"geometry": {"type": "Point", "coordinates": [31.2, 121.4]}}]}',
            "feature 1, property latitude: 121.4 is beyond ±90 degrees",
        ),
    ],
)
def test_a_bad_geojson_is_refused_by_feature(text: str, sentence: str) -> None:
    """The error names the feature and the fault."""
    with pytest.raises(Misuse) as caught:
        parse_geojson(text, source="a.geojson")
    assert sentence in str(caught.value)


def test_a_group_that_is_missing_is_named() -> None:
    """A row without a group is an error, not a group of its own."""
    with pytest.raises(Misuse, match="no column 'role'; its columns are lat, lon"):
        parse_csv("lat,lon\n1,2\n", source="a.csv", group_by="role")
    with pytest.raises(Misuse, match="line 2, column role names no group"):
        parse_csv("lat,lon,role\n1,2, \n", source="a.csv", group_by="role")
    with pytest.raises(Misuse, match="feature 1, property side names no group"):
        parse_geojson(collection((1.0, 2.0)), source="a.geojson", group_by="side")
    with pytest.raises(Misuse, match="cannot be the name of a group"):
        group_name("---")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.xlsx", b"PK", "must end in .csv"),
        ("a.csv", b"lat,lon\n\xff\xfe,1\n", "is not UTF-8"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    """The file's name or its bytes show the other kind."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Misuse, match=sentence):
        read_places(tmp_path / name)
    with pytest.raises(Misuse, match=r"cannot read .*none.csv: No such file"):
        read_places(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(Misuse, match=r"cannot read .*folder.csv: Is a directory"):
        read_places(tmp_path / "folder.csv")
