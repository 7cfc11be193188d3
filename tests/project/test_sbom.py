"""The bill of materials names exactly the locked packages, and is reproducible."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements/image.lock", "requirements/build.lock")


def written(*locks: str | Path) -> str:
    """Run the command of `make sbom`."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, ".ci/sbom.py", *map(str, locks)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_bill_names_every_locked_package() -> None:
    """Each has its version and all its hashes, and no other package is named."""
    bill = json.loads(written(*LOCKS))
    text = "".join((ROOT / lock).read_text(encoding="utf-8") for lock in LOCKS)
    pinned = set(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))
    assert {(one["name"], one["version"]) for one in bill["components"]} == pinned
    hashes = {each["content"] for one in bill["components"] for each in one["hashes"]}
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", text))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "coatcheck"
    refs = {one["bom-ref"] for one in bill["components"]}
    assert set(bill["dependencies"][0]["dependsOn"]) == refs
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])


def test_the_same_locks_make_the_same_bill(tmp_path: Path) -> None:
    """Another version makes another bill."""
    assert written(*LOCKS) == written(*LOCKS)
    other = tmp_path / "other.lock"
    text = (ROOT / LOCKS[1]).read_text(encoding="utf-8")
    other.write_text(re.sub(r"^hatchling==\S+", "hatchling==0.0.1", text, flags=re.MULTILINE))
    first, second = (json.loads(written(one))["serialNumber"] for one in (LOCKS[1], other))
    assert first != second


def test_the_makefile_has_the_command() -> None:
    """`make sbom` writes it from the lock files of the image."""
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^sbom:.*\n\t.*\.ci/sbom\.py " + " ".join(LOCKS), made, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_no_package_is_without_a_hash(lock: str) -> None:
    """Every component lists its hashes."""
    assert all(one["hashes"] for one in json.loads(written(lock))["components"])
