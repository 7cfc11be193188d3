"""The time of a report, compared with floats and with other libraries.

Two-dimensional reports at ε = 3. The exact path takes values in the user's units, checks and
snaps them, and draws from ChaCha20; the naive one adds floats from a numpy generator to values it
trusts. All times are of one run. `bench/optimum.py` has the errors.
"""

import importlib
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench import Figure, optimum, quickest, show
from coatcheck.domains import Box
from coatcheck.entropy import system
from coatcheck.randomizers import GridResponse, MinkowskiResponse, tuned
from coatcheck.randomizers.baselines import Laplace, PrivUnit

Floats = NDArray[np.float64]

EPSILON: Final = 3.0
SQUARE: Final = Box((-1, -1), (1, 1))
BULK: Final = 1_000_000
MANY: Final = 10_000_000
ONE: Final = 200  # single points in a timed batch; batches are short, to fit between other loads
FEW: Final = 2_000  # reports of a peer that draws one at a time


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    times = [*_in_bulk(), *_one_point(), *_peers(), *_memory(), *_import()]
    return show([*times, *optimum.figures()])


def _in_bulk() -> list[Figure]:
    exact = tuned(MinkowskiResponse, domain=SQUARE, epsilon=EPSILON)
    others = {
        "grid, exact": tuned(GridResponse, domain=SQUARE, epsilon=EPSILON),
        "privunit, float": PrivUnit(domain=SQUARE, epsilon=EPSILON),
        "laplace, float": Laplace(domain=SQUARE, epsilon=EPSILON),
    }
    values, generator, entropy = _values(BULK), np.random.default_rng(2), system()
    times = quickest(
        lambda: naive_minkowski(values, exact.radius, exact.mixing, generator),
        lambda: naive_laplace(values, generator),
        lambda: exact.randomize(values, entropy),
        *(_job(randomizer.randomize, values, entropy) for randomizer in others.values()),
    )
    naive, laplace, ours, *rest = (seconds / BULK * 1e6 for seconds in times)
    ratio = ours / naive
    return [
        Figure(what="naive float minkowski in numpy, one shot", value=naive, unit="µs"),
        Figure(what="minkowski, exact", value=ours, unit="µs", target=1.0),
        Figure(what="minkowski, exact : naive float", value=ratio, unit="x", target=1.5),
        Figure(what="minkowski, exact : plain numpy laplace", value=ours / laplace, unit="x"),
        *(
            Figure(what=f"{name} : plain numpy laplace", value=time / laplace, unit="x")
            for name, time in zip(others, rest, strict=True)
        ),
    ]


def _one_point() -> list[Figure]:
    randomizer, entropy, value = (
        tuned(MinkowskiResponse, domain=SQUARE, epsilon=EPSILON),
        system(),
        (0.1, -0.2),
    )

    def batch() -> None:
        for _ in range(ONE):
            randomizer.randomize_one(value, entropy)

    seconds = quickest(batch, rounds=200)[0] / ONE
    return [Figure(what="one point, exact", value=seconds * 1e6, unit="µs", target=15.0)]


def _peers() -> list[Figure]:
    """Return how much longer other libraries take per report than our exact path in bulk."""
    exact, entropy = tuned(MinkowskiResponse, domain=SQUARE, epsilon=EPSILON), system()
    figures = []
    for name, make in (("opendp", _opendp), ("diffprivlib", _diffprivlib)):
        try:
            jobs = make(_values(FEW))
        except Exception as error:  # noqa: BLE001 - a peer fails to import in its own ways
            print(f"{name} is absent ({type(error).__name__}: {error}); install '.[peers]'")
            continue
        bulk = _values(BULK)
        ours, *theirs = quickest(_job(exact.randomize, bulk, entropy), *jobs.values(), rounds=3)
        figures += [
            Figure(what=f"{label} : ours", value=time / FEW / (ours / BULK), unit="x")
            for label, time in zip(jobs, theirs, strict=True)
        ]
    return figures


def _opendp(values: Floats) -> dict[str, Callable[[], object]]:
    dp = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    scale = 2 * SQUARE.dimension / EPSILON
    vectors = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    lattice = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    floats = dp.m.make_laplace(*vectors, scale=scale)
    integers = dp.m.make_laplace(*lattice, scale=scale * (SQUARE.steps // 2))
    flat, points = values.ravel().tolist(), SQUARE.snap(values).ravel().tolist()
    return {
        "opendp laplace, floats in one list": _job(floats, flat),
        "opendp laplace, integers in one list": _job(integers, points),
    }


def _diffprivlib(values: Floats) -> dict[str, Callable[[], object]]:
    mechanisms = importlib.import_module("diffprivlib.mechanisms")
    laplace = mechanisms.Laplace(epsilon=EPSILON, sensitivity=2 * SQUARE.dimension)
    staircase = mechanisms.Staircase(epsilon=EPSILON / 2, sensitivity=2)
    flat = values.ravel().tolist()
    return {
        "diffprivlib laplace, a value at a time": lambda: [laplace.randomise(x) for x in flat],
        "diffprivlib staircase, a value at a time": lambda: [staircase.randomise(x) for x in flat],
    }


def _memory() -> list[Figure]:
    """Return what 1e7 reports need beyond values and reports, measured in a fresh process."""
    program = "from bench.randomizers import print_growth; print_growth()"
    done = subprocess.run(  # noqa: S603 - our own program, by our own interpreter
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    growth = float(done.stdout)
    return [
        Figure(
            what="1e7 reports: memory beyond values and reports",
            value=growth,
            unit="MB",
            target=64.0,
        )
    ]


def print_growth() -> None:
    """Print how many megabytes the peak grew by, beyond the reports themselves."""
    response = tuned(MinkowskiResponse, domain=SQUARE, epsilon=EPSILON)
    values = _values(MANY)
    response.randomize(values[:1], system())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reports = response.randomize(values, system())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown / 1024 - reports.nbytes / 2**20)


def naive_minkowski(
    values: Floats, radius: float, mixing: float, generator: np.random.Generator
) -> Floats:
    """Return reports as coded from the paper: floats, a predictable generator, no checks."""
    near = generator.random(len(values)) < mixing
    cap = values + generator.uniform(-radius, radius, values.shape)
    far = generator.uniform(-(1 + radius), 1 + radius, values.shape)
    return np.where(near[:, None], cap, far)


def naive_laplace(values: Floats, generator: np.random.Generator) -> Floats:
    """Return plain numpy Laplace noise on every coordinate."""
    return values + generator.laplace(scale=4 / EPSILON, size=values.shape)


def _values(size: int) -> Floats:
    return np.random.default_rng(1).uniform(-1, 1, (size, 2))


def _job(function: Callable[..., Any], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


def _import() -> list[Figure]:
    """Return how long a fresh interpreter takes to import the library and its randomizers."""
    command = [sys.executable, "-c", "import coatcheck.randomizers"]

    def start() -> None:
        subprocess.run(command, check=True)  # noqa: S603 - our own interpreter and code

    def nothing() -> None:
        subprocess.run([sys.executable, "-c", ""], check=True)

    seconds, bare = quickest(start, nothing)
    return [Figure(what="import of the randomizers", value=seconds - bare, unit="s", target=0.5)]
