"""`coatcheck curve` and `coatcheck compose` at the shell."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coatcheck.accounting.composition import compose
from coatcheck.accounting.laws import AnyLdp
from coatcheck.cli import main

LOCAL = ("--local-epsilon", "4", "--crowd", "10000")


def run(*arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, arguments)


def test_a_curve_as_json_and_as_a_table() -> None:
    """δ falls from ε = 0 to below any promise; the attainable value lies below it."""
    found = json.loads(run("curve", *LOCAL, "--json", "--points", "7", "--orders", "2,8").stdout)
    deltas = [point["delta"] for point in found["curve"]]
    assert deltas == sorted(deltas, reverse=True)
    assert found["curve"][0]["epsilon"] == 0
    assert deltas[-1] <= 1.01e-12
    assert all(low <= high for low, high in zip(found["attained"], deltas, strict=True))
    assert [one["order"] for one in found["renyi"]] == [2, 8]
    assert found["renyi"][0]["epsilon"] < found["renyi"][1]["epsilon"]
    assert found["adjacency"] == "replacing one person's value"
    table = run("curve", *LOCAL, "--points", "7").stdout
    assert "δ at most" in table
    assert "Rényi at most" in table


def test_a_curve_of_many_rounds_and_of_fields() -> None:
    """Rounds add up, a secret sample states its assumption, and fields have a law as well."""
    many = json.loads(run("curve", *LOCAL, "--rounds", "80", "--sampled", "0.2", "--json").stdout)
    assert many["attained"] is None
    assert any("corrupted" in one for one in many["assumptions"])
    total = compose(AnyLdp(epsilon=4.0), crowd=10_000, delta=1e-12, rounds=80, sampled=0.2)
    assert many["curve"][-1]["epsilon"] == pytest.approx(total)
    fields = run("curve", "--fields", "10:1,10:1", "--crowd", "500", "--json", "--points", "3")
    assert json.loads(fields.stdout)["local_epsilon"] == pytest.approx(2.0)


def test_a_curve_is_drawn(tmp_path: Path) -> None:
    """The plot is written, with and without a lower curve."""
    for number, more in enumerate(((), ("--rounds", "3"))):
        path = tmp_path / f"{number}.png"
        done = run("curve", *LOCAL, "--points", "5", "--plot", str(path), *more)
        assert done.exit_code == 0
        assert path.read_bytes().startswith(b"\x89PNG")


def test_rounds_are_composed() -> None:
    """From options or a list of kinds, the sum is that of the library."""
    exact = compose(AnyLdp(epsilon=4.0), crowd=10_000, delta=2e-7, rounds=80)
    done = run("compose", *LOCAL, "--rounds", "80", "--delta", "2e-7", "--json")
    assert json.loads(done.stdout)["epsilon"] == exact
    listed = run("compose", "--delta", "2e-7", "--round", "80:any:4:1e4", "--json")
    assert json.loads(listed.stdout)["epsilon"] == pytest.approx(exact, rel=2e-3)
    kinds = ("--round", "5:grid:2:4000:16", "--round", "3:bounded:3:2000:0.5")
    mixed = json.loads(run("compose", "--delta", "1e-6", *kinds, "--json").stdout)
    assert mixed["rounds"] == 8
    assert max(kind["epsilon"] for kind in mixed["kinds"]) < mixed["epsilon"] < 3
    told = run("compose", *LOCAL, "--rounds", "80", "--delta", "2e-7").stdout
    assert "80 rounds together" in told
    assert "fixed in advance" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["curve", "--crowd", "10"], "either `--local-epsilon`"),
        (["curve", "--local-epsilon", "1"], "give `--crowd`"),
        (["curve", "--local-epsilon", "1", "--crowd", "0"], "must be at least 1"),
        (["curve", *LOCAL, "--points", "-1"], "points"),
        (["curve", *LOCAL, "--orders", "1"], "each of `orders`"),
        (["curve", *LOCAL, "--orders", "two"], "--orders"),
        (["curve", *LOCAL, "--plot", "curve.txt"], ".png"),
        (["curve", *LOCAL, "--rounds", "0"], "must be at least 1"),
        (["curve", *LOCAL, "--sampled", "2"], "`sampled`"),
        (["compose", "--delta", "1e-6"], "either `--local-epsilon`"),
        (["compose", *LOCAL, "--delta", "2"], "between 0 and 1"),
        (["compose", *LOCAL, "--delta", "1e-6", "--round", "1:any:1:10"], "not by both"),
        (["compose", "--delta", "1e-6", "--round", "1:any:1"], "COUNT:MECHANISM"),
        (["compose", "--delta", "1e-6", "--round", "1:magic:1:10"], "any | grid"),
        (["compose", "--delta", "1e-6", "--round", "1:grid:1:10"], ":CELLS"),
        (["compose", "--delta", "1e-6", "--round", "0:any:1:10"], "must be at least 1"),
    ],
)
def test_mistakes_are_errors(arguments: list[str], told: str) -> None:
    """Wrong input ends with code 2 and an error that says what to do."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert told in done.stderr
