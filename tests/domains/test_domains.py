"""Values map to the lattice and back; invalid values are named and not moved."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domains import (
    Ball,
    Box,
    Categories,
    Domain,
    Product,
    domain_from_params,
    lattice_norm_within,
)
from coatcheck.errors import Misuse, OutsideDomain

SQUARE = Box((-1, -1), (1, 1))
CITY = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
PROFILE = Product(
    {"place": CITY, "ride": Categories(("shared", "alone", "either"))},
    shares={"place": 0.7, "ride": 0.3},
)

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.tuples(finite, finite), st.tuples(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6)), st.data())
def test_a_box_gives_back_what_it_got_to_half_a_step(
    low: tuple[float, float], width: tuple[float, float], data: st.DataObject
) -> None:
    """Snapping moves a value by at most half a step along each axis."""
    high = tuple(a + b for a, b in zip(low, width, strict=True))
    box = Box(low, high)
    value = [
        [data.draw(st.floats(a, b)) for a, b in zip(low, high, strict=True)],
        list(low),
        list(high),
    ]
    points = box.snap(value)
    assert np.abs(points).max() <= box.steps // 2
    step = (np.array(high) - np.array(low)) / box.steps
    assert (np.abs(box.values(points) - value) <= step * 0.5001 + 1e-9).all()
    assert [tuple(row) for row in points.tolist()] == [box.snap_one(row) for row in value]


@given(
    st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf]),
    # Rounded: the length of a vector of 1e-170s underflows, here in the test.
    st.lists(st.floats(-1, 1).map(lambda x: round(x, 9)), min_size=1, max_size=6),
    st.sampled_from([2, 8, 2**20]),
)
def test_no_point_of_a_ball_leaves_it(p: float, direction: list[float], steps: int) -> None:
    """For any rounding of a vector, its lattice point stays within the radius, in integers."""
    ball = Ball(radius=0.3, p=p, dimension=len(direction), steps=steps)
    length = np.linalg.norm(direction, ord=p)
    value = np.array(direction) / (length or 1.0) * 0.3
    point = ball.snap([value])
    assert lattice_norm_within(point[0].tolist(), p, steps // 2)
    assert np.abs(ball.values(point) - value).max() <= 0.3 * 2 * len(direction) / steps


def test_clamping_is_only_done_when_asked() -> None:
    """Values outside are errors by default and clamped on request, for boxes and balls."""
    with pytest.raises(OutsideDomain, match=r"value 1, axis 0: 1\.5 is outside"):
        SQUARE.snap([(0, 0), (1.5, 0)])
    assert SQUARE.values(SQUARE.snap([(1.5, -7)], clamp=True)).tolist() == [[1, -1]]
    ball = Ball(radius=1, p=2, dimension=2)
    with pytest.raises(OutsideDomain, match="value 0: its l2 norm 5"):
        ball.snap([(3, 4)])
    assert np.allclose(ball.values(ball.snap([(3, 4)], clamp=True)), (0.6, 0.8), atol=1e-5)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([(0, 0), (0, math.nan)], "value 1, axis 1: nan is not a finite number"),
        ([(math.inf, 0)], "value 0, axis 0: inf is not a finite number"),
        ([(0, 0, 0)], r"shape \(n, 2\), got \(1, 3\)"),
        ([0, 0], r"shape \(n, 2\), got \(2,\)"),
        ("north", "must be numbers"),
        ([("a", "b")], "must be numbers"),
    ],
)
@pytest.mark.parametrize("clamp", [False, True])
def test_an_invalid_value_is_named(values: Any, sentence: str, *, clamp: bool) -> None:
    """NaN, infinities, wrong shapes and texts are refused with their place, clamp or not."""
    with pytest.raises(Misuse, match=sentence):
        SQUARE.snap(values, clamp=clamp)


@pytest.mark.parametrize("value", [(math.nan, 0.0), (0.0, 2.0), (0.0,)])
def test_one_value_is_checked_like_many(value: tuple[float, ...]) -> None:
    """The path for one value refuses what the bulk path refuses."""
    with pytest.raises(Misuse):
        SQUARE.snap_one(value)


def test_a_geographic_box_gives_errors_in_metres() -> None:
    """Half a degree of latitude is 55.6 km; of longitude less, by the cosine of the latitude."""
    assert CITY.unit == "m"
    assert CITY.scale[0] == pytest.approx(27_798.8, abs=1)
    assert CITY.scale[1] == pytest.approx(2 * 27_798.8 * math.cos(math.radians(31.25)), abs=1)
    assert CITY.values(CITY.snap([(31.23, 121.47)]))[0] == pytest.approx((31.23, 121.47), abs=1e-6)


@given(st.floats(1e-6, 50), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_split_budget_never_adds_up_to_more(
    epsilon: float, first: float, second: float, third: float
) -> None:
    """The parts of a budget, added exactly, stay within it, and waste next to nothing."""
    fields = {name: Categories(("a", "b")) for name in "xyz"}
    product = Product(fields, shares={"x": first, "y": second, "z": third})
    parts = product.split(epsilon).values()
    assert sum(map(Fraction, parts)) <= Fraction(epsilon)
    assert math.fsum(parts) == pytest.approx(epsilon)


def test_a_product_keeps_its_fields_apart() -> None:
    """Columns of values go in, columns of values come out."""
    points = PROFILE.snap({"place": [(31.1, 121.9)], "ride": ["alone"]})
    assert points.shape == (1, 3)
    back = PROFILE.values(points)
    assert back["ride"].tolist() == ["alone"]
    assert back["place"][0] == pytest.approx((31.1, 121.9), abs=1e-6)
    with pytest.raises(Misuse, match="must have the fields"):
        PROFILE.snap({"place": [(31.1, 121.9)]})
    with pytest.raises(Misuse, match="equally many values"):
        PROFILE.snap({"place": [(31.1, 121.9)], "ride": ["alone", "alone"]})


def test_an_unknown_label_is_named() -> None:
    """An unknown label is refused with its place."""
    with pytest.raises(OutsideDomain, match="value 1: 'walk' is not one of"):
        Categories(("a", "b")).snap(["a", "walk"])
    with pytest.raises(Misuse, match="a list of labels"):
        Categories(("a", "b")).snap("a")


@pytest.mark.parametrize(
    "domain",
    [
        SQUARE,
        CITY,
        PROFILE,
        Box((0,), (5,), steps=4),
        Ball(radius=0.1, p=1, dimension=6),
        Ball(radius=2, p=math.inf, dimension=3, steps=16),
        Categories(("a", "b")),
    ],
)
def test_parameters_make_an_equal_domain(domain: Domain) -> None:
    """`params` is enough to make an equal domain, and hashes alike."""
    again = domain_from_params(domain.params())
    assert again == domain
    assert hash(again) == hash(domain)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Box((), ()),
        lambda: Box((0, 0), (1,)),
        lambda: Box((1,), (0,)),
        lambda: Box((0,), (math.inf,)),
        lambda: Box("ab", "cd"),  # type: ignore[arg-type]
        lambda: Box((0,), (1,), steps=3),
        lambda: Box((0,), (1,), steps=2**25),
        lambda: Box.geographic(south=80, west=0, north=100, east=10),
        lambda: Box.geographic(south=0, west=170, north=1, east=-170),
        lambda: Ball(radius=0, p=2, dimension=2),
        lambda: Ball(radius=1, p=0.5, dimension=2),
        lambda: Ball(radius=1, p=math.nan, dimension=2),
        lambda: Ball(radius=1, p=2, dimension=0),
        lambda: Categories(()),
        lambda: Categories(("a", "a")),
        lambda: Categories("ab"),  # type: ignore[arg-type]
        lambda: Product({}),
        lambda: Product({"x": SQUARE}, shares={"y": 1.0}),
        lambda: Product({"x": SQUARE}, shares={"x": 0.0}),
        lambda: domain_from_params({"kind": "torus"}),
        lambda: domain_from_params({"kind": "box", "lo": [0.0], "hi": [1.0], "color": 1}),
    ],
)
def test_domains_without_meaning_are_refused(make: Any) -> None:
    """An impossible domain is refused by its constructor."""
    with pytest.raises(Misuse):
        make()
