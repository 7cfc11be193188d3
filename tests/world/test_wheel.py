"""The wheel holds the whole package and works where nothing else of the project is."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    """Sources, static files, the typing marker and the licence are inside; tests are not."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "coatcheck"
    ours = {
        f"coatcheck/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not any(name.startswith(("tests/", "bench/", "study/")) for name in inside)


def test_the_wheel_works_away_from_the_sources(wheel: Path, tmp_path: Path) -> None:
    """Unpacked alone, it imports, chooses a mechanism and answers on the command line."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import coatcheck; print(coatcheck.__file__); "
        "square = coatcheck.Box((-1, -1), (1, 1)); "
        "print(coatcheck.choose(epsilon=2.0, domain=square).randomizer.name); "
        "from coatcheck.cli import main; main(['--help'])"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout
    assert "grid" in done.stdout
    assert "compare" in done.stdout
