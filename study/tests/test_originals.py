"""The data sets made from originals: read as published, checked by their rows, in any order."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from coatcheck import Misuse
from study import datasets, originals


def _crowd(folder: Path) -> None:
    (folder / "gMission_cap1").mkdir(parents=True)
    text = "1 2 20 3\n30495 t 1.5 4.25 300 12.2\n3 w 2.5 4.125 1 1 300 0.7\n7 t 0.5 1.0 300 9\n"
    (folder / "gMission_cap1" / "data_00.txt").write_text(text)


def test_a_crowd_is_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are users; a file is written only if its rows have the sum of the figures."""
    _crowd(tmp_path / "from")
    with pytest.raises(Misuse, match="gmission: these originals do not hold the data"):
        originals.convert(tmp_path / "from", tmp_path / "to", say=lambda _: None)
    wanted = {
        "xy": np.array([[0.5, 1.0], [1.5, 4.25], [2.5, 4.125]]),
        "group": np.array(["user", "user", "worker"]),
    }
    sums = {**datasets.SUMS, "gmission": datasets.content(wanted)}
    monkeypatch.setattr(datasets, "SUMS", sums)
    said: list[str] = []
    assert not originals.convert(tmp_path / "from", tmp_path / "to", say=said.append)
    assert "gmission: complete; its rows are those of the figures" in said
    assert any("everysender" in line and "EverySender_cap1/data_00.txt" in line for line in said)
    found = datasets.checked(tmp_path / "to" / "gmission.npz", "gmission")
    assert found["xy"].tolist() == [[1.5, 4.25], [2.5, 4.125], [0.5, 1.0]]


def test_a_sum_knows_rows_and_not_their_order() -> None:
    """Rows may change places together; a changed number or a swapped label changes the sum."""
    rng = np.random.default_rng(1)
    rows = {"latlon": rng.uniform(size=(50, 2)), "core": rng.uniform(size=50) < 0.5}
    order = rng.permutation(50)
    sum_ = datasets.content(rows)
    assert datasets.content({key: value[order] for key, value in rows.items()}) == sum_
    assert datasets.content({**rows, "core": rows["core"][order]}) != sum_
    other = rows["latlon"].copy()
    other[7, 1] += 1e-12
    assert datasets.content({**rows, "latlon": other}) != sum_


def test_images_are_read_from_idx_files(tmp_path: Path) -> None:
    """Three lengths, then bytes; a compressed file is the same."""
    images = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    data = bytes([0, 0, 8, 3]) + np.array([2, 3, 4], dtype=">i4").tobytes() + images.tobytes()
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    assert np.array_equal(originals._idx(originals._bytes(tmp_path / "a.gz")), images)


def test_check_ins_are_visits_at_places(tmp_path: Path) -> None:
    """The first number of a line is a person; the others name locations."""
    texts = {"train": "1 5 6\n", "test": "2 5\n", "geo": "5 40.5 -74.0\n6 40.75 -73.5\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    paths = [tmp_path / f"{name}.txt" for name in texts]
    found = originals._check_ins(paths)["latlon"]
    assert sorted(found.tolist()) == [[40.5, -74.0], [40.5, -74.0], [40.75, -73.5]]
