"""Audit locked packages for known weaknesses with pip-audit: `python .ci/audit.py FILE.lock...`.

A weakness is a failure. Where the records cannot be queried (no network, or a mirror without them),
the audit prints so and passes: whether a commit passes must not depend on the network.
"""

import json
import subprocess
import sys
from typing import Any


def query(lock: str) -> dict[str, Any]:
    """Query the records of one lock file, without installing or resolving anything."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)  # noqa: S603 - our own command
    try:
        audit: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return {"dependencies": [], "unavailable": reason[:200]}
    return audit


def report(lock: str, audit: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what to print about a lock file, and whether it has no known weakness."""
    audited = [package for package in audit["dependencies"] if "vulns" in package]
    weaknesses = [
        f"{lock}: {package['name']} {package['version']} has {weakness['id']};"
        f" fixed in {', '.join(weakness['fix_versions']) or 'no version yet'}"
        for package in audited
        for weakness in package["vulns"]
    ]
    if weaknesses:
        return weaknesses, False
    if not audited:
        reason = audit.get("unavailable", "no records")
        return [f"{lock}: not audited, the records cannot be queried ({reason})"], True
    others = len(audit["dependencies"]) - len(audited)
    without = f", {others} without records" if others else ""
    return [f"{lock}: no known weakness in {len(audited)} packages{without}"], True


def main() -> int:
    """Audit every file on the command line."""
    passed = True
    for lock in sys.argv[1:]:
        lines, lock_passed = report(lock, query(lock))
        print("\n".join(lines))
        passed = passed and lock_passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
