"""Files that are written whole: nothing half written, nothing left over, the folder on disk too."""

import os
import resource
import stat
from pathlib import Path

import pytest

from coatcheck.durable_files import replace_file, write_bytes
from coatcheck.errors import Misuse


def test_a_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    """The new bytes stand under the name, alone in the folder."""
    for raw, mode in ((b"one", 0o600), (b"two" * 100_000, 0o600)):
        replace_file(tmp_path / "it", raw, mode=mode)
        assert (tmp_path / "it").read_bytes() == raw
        assert stat.S_IMODE((tmp_path / "it").stat().st_mode) == mode
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_the_folder_is_on_disk_after_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before it gets its name, and the folder after: for key files as well."""
    order: list[str] = []
    sync, move = os.fsync, Path.replace

    def synced(handle: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def moved(fresh: Path, place: Path) -> Path:
        order.append("name")
        return move(fresh, place)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr(Path, "replace", moved)
    write_bytes(tmp_path / "my.key", b"secret", secret=True)
    assert order == ["file", "name", "folder"]


def test_a_short_write_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A disk with room for a part keeps the old file; the sentence names it."""
    write_bytes(tmp_path / "ticket", b"old", secret=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(Misuse, match="cannot write"):
            write_bytes(tmp_path / "ticket", b"x" * 5000, secret=True, replace=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "ticket").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["ticket"]


def test_what_a_crash_left_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that gets the number of a dead one writes all the same."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", crash)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            replace_file(tmp_path / "it", b"half", mode=0o600)
    assert len(list(tmp_path.iterdir())) == 1
    replace_file(tmp_path / "it", b"whole", mode=0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
