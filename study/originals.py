"""The public originals, checked and converted: `python -m study data ORIGINALS FOLDER`.

Nothing is downloaded; the page of the study says where each original is published. A file is
written only if its rows are those of the figures, in any order. Check-ins are shuffled into a fixed
random order, so that a part of them is a sample.
"""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import Misuse, seeded
from study import datasets

Arrays = dict[str, NDArray[np.generic]]

NEEDED: Final = {
    "gmission": ("gMission_cap1/data_00.txt",),
    "everysender": ("EverySender_cap1/data_00.txt",),
    "gowalla_sf": ("DATA_SF_Gowalla_parsed.mat", "Gowalla_SF_(No head).csv"),
    "foursquare_nyc": ("NYC/train.txt", "NYC/test.txt", "NYC/geo.txt"),
    "mnist": (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ),
}
_NORTH: Final = 37.791  # where the first original of Gowalla ends
_CHECK_INS: Final = 138_368  # the paper's number; which were added is our guess


def convert(originals: Path, folder: Path, *, say: Callable[[str], None]) -> bool:
    """Write the data sets that a folder of originals gives; return whether all five exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, wanted in NEEDED.items():
        paths = [_found(originals, path) for path in wanted]
        missing = [path for path, one in zip(wanted, paths, strict=True) if one is None]
        if missing:
            say(f"{name}: {', '.join(missing)} not found under {originals}; {source(name)}")
            continue
        arrays = _MADE[name]([path for path in paths if path is not None])
        if datasets.content(arrays) != datasets.SUMS[name]:
            raise Misuse(
                f"{name}: these originals do not hold the data of the figures; {source(name)}"
            )
        np.savez_compressed(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type] # arrays
        say(f"{name}: written, {len(next(iter(arrays.values()))):,} rows")
    return _checked(folder, say)


def source(name: str) -> str:
    """Return where an original is published."""
    return f"it is published as {datasets.SOURCES[name]}"


def _checked(folder: Path, say: Callable[[str], None]) -> bool:
    complete = True
    for name in datasets.SUMS:
        try:
            datasets.checked(folder / f"{name}.npz", name)
        except Misuse as error:
            complete = False
            say(f"{name}: {error}")
        else:
            say(f"{name}: complete; its rows are those of the figures")
    return complete


def _found(folder: Path, path: str) -> Path | None:
    """Return a file by the end of its path, compressed or not; MNIST's names vary by a dot."""
    for name in (path, path.replace("-idx", ".idx")):
        for end in (name, f"{name}.gz"):
            hits = sorted(one for one in folder.rglob(Path(end).name) if one.match(end))
            if hits:
                return hits[0]
    return None


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _crowd(paths: list[Path]) -> Arrays:
    """Read lines `time t|w x y ...` after a first line of counts: tasks are users."""
    lines = [line.split() for line in _bytes(paths[0]).decode().splitlines()[1:] if line.strip()]
    kinds = {"t": "user", "w": "worker"}
    return {
        "xy": np.array([[float(x) for x in line[2:4]] for line in lines]),
        "group": np.array([kinds[line[1]] for line in lines]),
    }


def _gowalla(paths: list[Path]) -> Arrays:
    """Join check-ins of the first original with its places; fill up from just north of them."""
    from scipy.io import loadmat  # noqa: PLC0415 - only here

    parsed = loadmat(paths[0])
    core = parsed["Xlatlon"][parsed["user_location_pairs"][:, 1] - 1]  # Matlab counts from 1
    wide = np.loadtxt(paths[1], delimiter=",")
    north = wide[wide[:, 0] > _NORTH]
    north = north[np.argsort(north[:, 0], kind="stable")][: _CHECK_INS - len(core)]
    order = _order(_CHECK_INS)
    inside = np.arange(_CHECK_INS) < len(core)
    return {"latlon": np.concatenate([core, north])[order], "core": inside[order]}


def _order(count: int) -> NDArray[np.intp]:
    """Return a random order that is always the same."""
    return np.argsort(seeded(1).words(count), kind="stable")


def _check_ins(paths: list[Path]) -> Arrays:
    """Read visits `person location location ...`, and where each location is."""
    geo = (line.split() for line in _bytes(paths[2]).decode().splitlines() if line.strip())
    where = {number: (float(lat), float(lon)) for number, lat, lon in geo}
    visits = [
        where[location]
        for path in paths[:2]
        for line in _bytes(path).decode().splitlines()
        for location in line.split()[1:]
    ]
    return {"latlon": np.array(visits)[_order(len(visits))]}


def _images(paths: list[Path]) -> Arrays:
    """Read IDX files: four bytes of kind, four per length, then bytes."""
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return {name: _idx(_bytes(path)) for name, path in zip(names, paths, strict=True)}


def _idx(data: bytes) -> NDArray[np.uint8]:
    shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


_MADE: Final[dict[str, Callable[[list[Path]], Arrays]]] = {
    "gmission": _crowd,
    "everysender": _crowd,
    "gowalla_sf": _gowalla,
    "foursquare_nyc": _check_ins,
    "mnist": _images,
}
