"""Pictures of what knowledge of the map is worth: `python -m bench._pictures FOLDER`.

`city.png` shows the true places of people and three decodings at one local ε: each report
separately, by the density that the batch itself shows, and by a codebook of public places.
`errors.png` shows the mean error against ε, with the line of the best answer that needs no report.
Set COATCHECK_DATA to the directory of the check-ins; otherwise a synthetic crowd stands in. Needs
matplotlib.
"""

import sys
from pathlib import Path
from typing import Final

import numpy as np

from bench._crowds import geographic
from coatcheck.domains import Box, Floats
from coatcheck.entropy import seeded
from coatcheck.planning.comparison import check_file
from coatcheck.randomizers import Prior, choose
from coatcheck.randomizers.choice import misses

DATA: Final = "gowalla_sf"
EPSILON: Final = 5.0
BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
PEOPLE: Final = 3_000
PUBLIC: Final = 40_000


def main(arguments: list[str]) -> int:
    """Draw both pictures into a folder."""
    if len(arguments) != 1:
        print("usage: python -m bench._pictures FOLDER")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    places, box = geographic(DATA)
    order = np.random.default_rng(301).permutation(len(places))
    prior = Prior.from_points(places[order[:PUBLIC]])
    people = places[order[PUBLIC : PUBLIC + PEOPLE]]
    _city(folder / "city.png", box, people, prior)
    _errors(folder / "errors.png", box, people, prior)
    print(f"drew {folder / 'city.png'} and {folder / 'errors.png'}")
    return 0


def readings(epsilon: float, box: Box, people: Floats, prior: Prior) -> dict[str, Floats]:
    """Return the places that each decoder gives at one local ε."""
    plain = choose(epsilon=epsilon, domain=box, crowd=len(people)).randomizer
    reports = plain.randomize(people, seeded(1))
    best = choose(epsilon=epsilon, domain=box, prior=prior)
    named = best.randomizer.randomize(people, seeded(2))
    return {
        "each report by itself": plain.estimate(reports, "median"),
        "by the density that the batch shows": plain.estimate(reports, "learned"),
        "by a codebook for public places": best.randomizer.estimate(named, best.decode),
    }


def _city(path: Path, box: Box, people: Floats, prior: Prior) -> None:
    plt = check_file(path)
    shown = {"where people are": people, **readings(EPSILON, box, people, prior)}
    figure, panels = plt.subplots(2, 2, figsize=(9, 9), sharex=True, sharey=True)
    for panel, (title, places) in zip(panels.flat, shown.items(), strict=True):
        error = misses(box, places, people).mean()
        away = "" if places is people else f": {error / 1000:.1f} km off on average"
        distinct, counts = np.unique(places, axis=0, return_counts=True)
        sizes = np.clip(counts, 2, 200)
        panel.scatter(distinct[:, 1], distinct[:, 0], s=sizes, alpha=0.35, linewidths=0)
        panel.locator_params(axis="x", nbins=4)
        panel.set_title(title + away, fontsize=9)
        panel.set_xlim(box.lo[1], box.hi[1])
        panel.set_ylim(box.lo[0], box.hi[0])
    figure.suptitle(f"{len(people):,} people, local ε = {EPSILON:g}")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _errors(path: Path, box: Box, people: Floats, prior: Prior) -> None:
    plt = check_file(path)
    lines: dict[str, list[float]] = {}
    for epsilon in BUDGETS:
        for how, places in readings(epsilon, box, people, prior).items():
            lines.setdefault(how, []).append(float(misses(box, places, people).mean()) / 1000)
    free = choose(epsilon=1.0, domain=box, prior=prior).report_free
    figure, panel = plt.subplots(figsize=(7, 4.5))
    for how, errors in lines.items():
        panel.plot(BUDGETS, errors, marker="o", label=how)
    panel.axhline(
        (free or 0) / 1000,
        color="black",
        linestyle=":",
        label="no report, the median of the public places",
    )
    panel.set_yscale("log")
    panel.set_xlabel("local ε")
    panel.set_ylabel("mean error (km)")
    panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
