"""Tables of pandas, polars and GeoPandas as input, names as output, short notebook output."""

from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import coatcheck
from coatcheck import Box, Categories, Group, LeastCostMatching, Product
from coatcheck.domains.tables import read_people
from coatcheck.errors import Misuse

CITY = Box.geographic(south=31.1, west=121.3, north=31.4, east=121.7)
PLACES = np.array([[31.2, 121.4], [31.3, 121.5], [31.15, 121.65]])
NAMES = ("ann", "bob", "cid")
LAT, LON = PLACES.T

TABLES: dict[str, Any] = {
    "pandas": pd.DataFrame({"lon": LON, "Latitude": LAT}, index=list(NAMES)),
    "pandas with more": pd.DataFrame({"name": NAMES, "lng": LON, "age": 3, "lat": LAT}),
    "polars": pl.DataFrame({"id": NAMES, "longitude": LON, "lat": LAT}),
    "geopandas": geopandas.GeoDataFrame(
        {"id": NAMES}, geometry=geopandas.points_from_xy(LON, LAT), crs=4326
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_places_are_found_by_the_names_of_columns(kind: str) -> None:
    """Columns may have any order: a swapped place would be a silent error."""
    found = read_people(TABLES[kind], CITY)
    assert_array_equal(found.rows, PLACES)
    assert found.names == NAMES


def test_points_in_another_projection_become_degrees() -> None:
    """The table states its projection."""
    web = TABLES["geopandas"].to_crs(3857)
    np.testing.assert_allclose(read_people(web, CITY).rows, PLACES, atol=1e-9)
    with pytest.raises(Misuse, match="set_crs"):
        read_people(web.set_crs(None, allow_override=True), CITY)
    with pytest.raises(Misuse, match="must be a point"):
        read_people(web.set_geometry(web.geometry.buffer(1)), CITY)


def test_fields_of_a_product_are_columns() -> None:
    """A place in degrees is two columns, every other field the column of its name."""
    domain = Product({"place": CITY, "likes": Categories(("tea", "coffee"))})
    table = TABLES["pandas"].assign(likes=["tea", "tea", "coffee"])
    found = read_people(table, domain)
    assert [row["likes"] for row in found.rows] == ["tea", "tea", "coffee"]
    assert_array_equal([row["place"] for row in found.rows], PLACES)


def test_series_and_plain_rows() -> None:
    """A series keeps its index; an array, a list and a polars series are counted."""
    assert read_people(pd.Series([1.0, 2.0], index=["a", "b"]), Box((0,), (3,))).names == ("a", "b")
    for given in (pl.Series([1.0, 2.0]), np.array([1.0, 2.0]), [1.0, 2.0]):
        found = read_people(given, Box((0,), (3,)))
        assert (list(found.rows), found.names) == ([1.0, 2.0], (0, 1))


@pytest.mark.parametrize(
    ("table", "domain"),
    [
        (pd.DataFrame({"a": LAT, "b": LON}), CITY),
        (pd.DataFrame({"lat": LAT, "latitude": LAT, "lon": LON}), CITY),
        (pd.DataFrame({"a": LAT, "b": LON, "c": LON}), Box((0, 0), (1, 1))),
        (pd.DataFrame({"a": LAT}), Product({"b": Box((0,), (1,)), "c": Box((0, 0), (1, 1))})),
    ],
)
def test_ambiguous_columns_are_refused(table: Any, domain: Any) -> None:
    """The library never guesses."""
    with pytest.raises(Misuse, match="select these columns"):
        read_people(table, domain)


def test_names_come_out() -> None:
    """Partners are named by the index of their table."""
    groups = {"riders": Group(CITY, crowd=3), "drivers": Group(CITY, crowd=3)}
    task = LeastCostMatching(groups=("riders", "drivers"))
    plan = coatcheck.plan(groups, epsilon=8.0, delta=1e-6, task=task)
    cars = TABLES["pandas"].set_axis(["car 1", "car 2", "car 3"])
    outcome = coatcheck.simulate(plan, {"riders": TABLES["polars"], "drivers": cars}, entropy=3)
    riders, drivers = outcome.table(0), outcome.table(1)
    assert [row["name"] for row in riders] == list(NAMES)
    assert sorted(name for row in riders for name in row["partners"]) == list(cars.index)
    back = {name: row["name"] for row in drivers for name in row["partners"]}
    assert all(back[row["name"]] == row["partners"][0] for row in riders)
    frame = pd.DataFrame(riders)
    assert list(frame.columns) == ["name", "partners", "values"]


def test_what_a_notebook_shows_is_short(tmp_path: Path) -> None:
    """One line in a shell, a table in a notebook; texts of people are escaped."""
    plan = coatcheck.plan({"people": Group(CITY, crowd=500)}, epsilon=1.0, delta=1e-6)
    ledger = coatcheck.Ledger.open(tmp_path / "mine", epsilon=3.0)
    promise = plan["people"].best.guarantee
    ledger.spend(promise, round_id="<b>today")
    assert repr(plan) == "Plan(ε = 1, δ = 1e-06, 500 people)"
    assert repr(promise).startswith("Guarantee(ε = 1, δ = 1e-06, one of 500, local ε = ")
    assert repr(ledger).startswith("Ledger(1.") or repr(ledger).startswith("Ledger(0.")
    for shown in (plan, plan["people"], promise, ledger):
        assert len(repr(shown)) < 200
    assert "&lt;b&gt;today" in ledger._repr_html_()
    for shown in (plan, promise, ledger):
        html = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<b>" not in html
