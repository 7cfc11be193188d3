"""Write a bill of materials (CycloneDX 1.6): `python .ci/sbom.py FILE.lock... > sbom.json`.

It lists every package that an install takes, with its version and its hashes, from the lock files
alone, without clock or network: the same commit has the same bill.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def packages(lock: Path) -> list[dict[str, Any]]:
    """Return the packages of a lock file, in its order."""
    listed: list[dict[str, Any]] = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        pinned = PINNED.match(line)
        if pinned:
            name = re.sub(r"[-_.]+", "-", pinned["name"]).lower()
            purl = f"pkg:pypi/{name}@{pinned['version']}"
            package = {"type": "library", "bom-ref": purl, "name": name}
            package |= {"version": pinned["version"], "purl": purl, "hashes": []}
            listed.append(package)
        for content in HASH.findall(line):
            listed[-1]["hashes"].append({"alg": "SHA-256", "content": content})
    return listed


def bill(locks: list[Path]) -> dict[str, Any]:
    """Return the bill of all packages of some lock files, each package once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    by_ref = {part["bom-ref"]: part for lock in locks for part in packages(lock)}
    parts = [by_ref[ref] for ref in sorted(by_ref)]
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    component = {"type": "application", "bom-ref": own, "name": project["name"], "purl": own}
    licenses = [{"license": {"id": project["license"]}}]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # By the content, so that it changes when the bill does and at no other time.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(parts))}",
        "version": 1,
        "metadata": {
            "component": {**component, "version": project["version"], "licenses": licenses}
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": sorted(by_ref)}],
    }


if __name__ == "__main__":
    json.dump(bill([Path(name) for name in sys.argv[1:]]), sys.stdout, indent=1)
    sys.stdout.write("\n")
