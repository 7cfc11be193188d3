"""Ask pip-audit for known weaknesses of locked packages: `python .ci/audit.py FILE.lock...`.

A weakness is a failure. Where nobody can be asked (no network, or a mirror without the records),
that is told and is no failure: the same commit must not pass or fail by the weather.
"""

import json
import subprocess
import sys
from typing import Any


def asked(lock: str) -> dict[str, Any]:
    """Query the records of one lock file, without installing or resolving anything."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)  # noqa: S603 - our own command
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"dependencies": [], "away": why[:200]}
    return found


def told(lock: str, found: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what to print about a lock file, and whether it has no known weakness."""
    known = [one for one in found["dependencies"] if "vulns" in one]
    weak = [
        f"{lock}: {one['name']} {one['version']} has {flaw['id']};"
        f" fixed in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in known
        for flaw in one["vulns"]
    ]
    left = len(found["dependencies"]) - len(known)
    if weak:
        return weak, False
    if not known:
        return [
            f"{lock}: not audited, nobody could be asked ({found.get('away', 'no records')})"
        ], True
    beside = f", {left} of unknown standing" if left else ""
    return [f"{lock}: no known weakness in {len(known)} packages{beside}"], True


def main() -> int:
    """Audit every file on the command line."""
    fine = True
    for lock in sys.argv[1:]:
        lines, good = told(lock, asked(lock))
        print("\n".join(lines))  # noqa: T201 - the result
        fine = fine and good
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
