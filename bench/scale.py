"""A rehearsal of large rounds: the cost of each stage per report, and the needs of 1e8 per hour.

`python -m bench scale --reports N [N ...] [--decoys M] [--stand-in] [--runner pool|ray] [--json]`

Processes seal reports in bulk and write them into the shuffler's store; after the close the real
services do everything. `--stand-in` leaves the curves out: bytes of the same size stand in for
seals. With several sizes, the exponent of growth between the first and the last is printed as well:
by the clock, and by CPU time, which other work on the machine changes less.

The task is a maximum matching of reports as they come (`raw`), three others within the radius of
each, whatever the size of the crowd. So most groups of people who can reach each other are small,
and what grows is the pipeline. Where estimates pile up on an edge, or the radius is near the one
at which everybody can reach everybody, a maximum matching takes much longer: `python -m bench
tasks` and `matchings` are about that.
"""

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx2

from bench import Figure, show
from bench._capacity import Measured, capacity
from bench._curves import Done, Limit, limits
from bench._nodes import Nodes
from bench._reports import in_groups, uploads
from bench._staged import NODES, NOTES, STAND_IN
from bench._watched import Progress, largest, last_log_line
from coatcheck.domains import Box
from coatcheck.protocol.agreement import read_signed
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.settings import ShufflerSettings, read_settings
from coatcheck.services.shuffler.store import ShufflerStore

NAMES: Final = {
    ("shuffler", "peel"): "peel",
    ("shuffler", "sift"): "sift",
    ("shuffler", "gather"): "gather",
    ("shuffler", "release"): "release",
    ("server", "open_reports"): "open",
    ("server", "compare"): "compare",
    ("server", "cut"): "compute",
    ("server", "near"): "compute",
    ("server", "compute"): "compute",
    ("server", "task"): "task",
    ("server", "deal"): "deal",
    ("server", "seal"): "seal",
    ("server", "answer"): "answer",
}
"""The stages by role: `release` and `answer` are the jobs as a whole, but for the task; `task` is
what the task itself takes within `compute`."""
_OTHERS: Final = 3
_AREA: Final = 2.0
"""How many others are within the radius, and over which area raw reports spread, about."""
CURVES: Final = {
    "peel": ("shuffler", "open"),
    "open": ("server", "open"),
    "seal": ("server", "seal"),
}
"""The stages that open or seal: whose, and what."""
Row = dict[str, Any]


class Staged(Cluster):
    """A cluster whose processes record the cost of their stages."""

    module: ClassVar[str] = "bench._staged"


def main() -> int:
    """Rehearse, and print a row per stage and the capacity that follows."""
    args = _arguments()
    rows: list[Row] = []
    folder = Path(tempfile.mkdtemp(prefix="coatcheck-scale-"))
    try:
        for reports in args.reports:
            result = rehearse(folder / str(reports), reports, args)
            shutil.rmtree(folder / str(reports))
            for row in result:
                _print(row, args)
            rows += result
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures = growth(rows) + capacity(_measured(rows))
    return show(figures + _targets(rows, stand_in=args.stand_in))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--reports", type=int, nargs="+", default=[4_000])
    parser.add_argument(
        "--decoys", type=int, default=0, help="uniform reports of each person beside their own"
    )
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--runner", choices=["pool", "ray"], default="pool")
    parser.add_argument("--json", action="store_true")
    own = sys.argv[sys.argv.index("scale") + 1 :] if "scale" in sys.argv else []
    args = parser.parse_args(own)
    if args.stand_in and args.runner == "ray":
        parser.error("nodes of Ray seal for real: leave out --stand-in, or --runner ray")
    if min(args.reports) < 1000:
        parser.error("a rehearsal has at least 1000 reports")
    return args


def rehearse(folder: Path, reports: int, args: argparse.Namespace) -> list[Row]:
    """Run one round with a number of reports through the services."""
    folder.mkdir()
    notes = folder / "notes"
    os.environ[NOTES] = str(notes)
    os.environ.pop(STAND_IN, None)
    if args.stand_in:
        os.environ[STAND_IN] = "1"
    before = {} if args.stand_in else limits()
    with _runner_settings(folder, args.runner) as runner, Staged(folder, extra=runner) as local:
        # Its minimum is the crowd, so that it closes when everybody is in.
        people = reports // 2 // (1 + args.decoys)
        url = local.open_round(_plan(people, args.decoys), closes=1, expires=86_000)
        rows = [_store(local, url, reports, args)]
        rows += _wait(local, url, reports)
        noted = [json.loads(line) for line in notes.read_text(encoding="ascii").splitlines()]
        curves = _curves(noted, before)
        rows += [_row(line, reports, curves) for line in _summed(noted)]
        rows += [{**row, "reports": reports} for row in largest(local)]
        rows.append({"stage": "disk", "reports": reports, **_bytes(local)})
    return rows


@contextmanager
def _runner_settings(folder: Path, runner: str) -> Iterator[dict[str, Any]]:
    """Yield the settings of the runner; with `ray`, two nodes of one core each run meanwhile."""
    large = {"batch_limit": 2**40, "peer_timeout": 3600.0, "runner": runner}
    os.environ.pop(NODES, None)
    if runner == "pool":
        yield large
        return
    with Nodes(folder) as nodes:
        os.environ[NODES] = str(nodes.pid)
        yield {**large, "ray": nodes.settings()}


def _plan(minimum: int, decoys: int = 0) -> dict[str, Any]:
    square = Box(lo=(0.0, 0.0), hi=(1.0, 1.0)).params()
    mechanism = {"name": "minkowski", "domain": square, "epsilon": 2.0, "radius": 0.5}
    # In a crowd of millions a δ of 1e-3 would leave no ε to promise.
    delta = min(1e-3, 0.5 / minimum)
    # Raw: `project` would put 42 % of all people on the border, and 7 % into a corner.
    group = {"randomizer": mechanism, "decode": "raw", "minimum": minimum, "delta": delta}
    group["decoys"] = decoys
    radius = math.sqrt(_OTHERS * _AREA / math.pi / max(1, minimum * (1 + decoys)))
    return {
        "round": "rehearsal",
        "task": {"name": "maximum-matching", "radius": radius},
        "groups": [{"name": name, **group} for name in ("riders", "drivers")],
    }


def _store(local: Cluster, url: str, reports: int, args: argparse.Namespace) -> Row:
    """Write all uploads into the shuffler's store, as a process beside it does."""
    config = local.folder / "shuffler-1.toml"
    settings = read_settings(config, role="shuffler", kind=ShufflerSettings)
    store = ShufflerStore(settings.store_url, settings.round_key_folder)
    signed = read_signed(store.round(bytes.fromhex(url.rpartition("/")[2])).signed)
    begun, wall, own, done, progress = time.perf_counter(), 0.0, 0.0, 0, Progress()
    for group in in_groups(uploads(signed, reports, stand_in=args.stand_in)):
        start, cpu = time.perf_counter(), time.process_time()
        store.put(group)
        wall, own = wall + time.perf_counter() - start, own + time.process_time() - cpu
        done += len(group)
        progress.show(f"{done:,} of {reports:,} uploads are stored")
    store.close()
    return {
        "stage": "store",
        "reports": reports,
        "seconds": wall,
        "cpu_seconds": own,
        "people_seconds": time.perf_counter() - begun - wall,
        "serial_microseconds": 1e6 * own / reports,
    }


def _wait(local: Cluster, url: str, reports: int) -> list[Row]:
    """Wait for the phases, as the services report them."""
    board, progress = f"{local.url('board')}/rounds/{url.rpartition('/')[2]}", Progress()
    client = httpx2.Client(timeout=600)  # one client, because each new one takes 0.05 s of CPU

    def until(is_so: Callable[[], bool]) -> float:
        while not is_so():
            local.check(*local.names)
            progress.show(last_log_line(local.folder))
            time.sleep(min(0.5, max(0.05, reports / 1e6)))  # frequent polling takes CPU, too
        return time.perf_counter()

    def ask(where: str) -> Any:
        return client.get(where).json()

    closed = until(lambda: ask(url)["status"]["phase"] != "open")
    handed = until(lambda: ask(url)["status"]["phase"] == "delivered")
    shown = until(lambda: ask(board)["shown"])
    client.close()
    return [
        {"stage": "closed to delivered", "reports": reports, "seconds": handed - closed},
        {"stage": "closed to published", "reports": reports, "seconds": shown - closed},
    ]


def _curves(notes: list[Row], before: dict[str, Limit]) -> dict[str, Limit]:
    """Return each stage's limit, as its processes measured it between its parts.

    Nodes of Ray measure nothing, and a small round has no parts; then the limit from before counts.
    """
    stage_limits = {}
    for name, (role, kind) in CURVES.items() if before else ():
        done = [
            Done(note["many"], note["seconds"], note["cpu"])
            for note in notes
            if (note["role"], note["stage"]) == (role, f"limit {kind}")
        ]
        stage_limits[name] = Limit.of(done) if done else before[kind]
    return stage_limits


def _summed(notes: list[Row]) -> list[Row]:
    """Add up the calls of each stage."""
    rows: dict[str, Row] = {}
    for note in notes:
        name = NAMES.get((note["role"], note["stage"]))
        if name is None:
            continue
        row = rows.setdefault(name, {"stage": name, "peak_bytes": 0, "pids": set()})
        row["pids"].add(note["pid"])
        row["peak_bytes"] = max(row["peak_bytes"], note["peak_bytes"])
        for key in ("seconds", "cpu_seconds", "own_seconds"):
            row[key] = row.get(key, 0.0) + note[key]
    # On a node the task cannot be measured alone, so its whole stage counts.
    task = rows.setdefault("task", {**rows["compute"], "stage": "task"})
    whole = rows["answer"]  # the task has a row of its own
    inside = task["pids"] <= whole["pids"]
    for key in ("seconds", "cpu_seconds", "own_seconds") if inside else ("seconds", "cpu_seconds"):
        whole[key] -= task[key]
    for row in rows.values():
        del row["pids"]
    return [rows[name] for name in dict.fromkeys(NAMES.values())]


def _row(row: Row, reports: int, curves: dict[str, Limit]) -> Row:
    """Compare a stage with the time of the curve operations alone on all cores."""
    name, own = row["stage"], row.pop("own_seconds")
    limit = curves.get(name)
    return {
        **row,
        "reports": reports,
        "limit_seconds": limit and limit.seconds * reports,
        "share_of_limit": limit and limit.seconds * reports / row["seconds"],
        # On a machine with other load, this share says more than the one by the clock.
        "share_of_cpu": limit and limit.cpu * reports / row["cpu_seconds"],
        "serial_microseconds": 1e6 * own / reports,
    }


def _bytes(local: Cluster) -> Row:
    """Return the bytes that each role has on the disk at the end."""
    sizes = {"shuffler": 0, "server": 0, "board": 0}
    for path in local.folder.rglob("*"):
        role = path.relative_to(local.folder).parts[0].partition("-")[0].partition(".")[0]
        if role in sizes and path.is_file():
            sizes[role] += path.stat().st_size
    return {f"{role}_bytes": size for role, size in sizes.items()}


def growth(rows: list[Row]) -> list[Figure]:
    """Return the exponents of growth between the smallest and the largest round."""
    sizes = sorted({row["reports"] for row in rows})
    figures = []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        ends = [
            row for size in sizes for row in rows if (row["stage"], row["reports"]) == (stage, size)
        ]
        for key in ("seconds", "cpu_seconds", "peak_bytes"):
            if len(sizes) > 1 and all(row.get(key) for row in ends):
                apart = math.log(ends[-1][key] / ends[0][key]) / math.log(sizes[-1] / sizes[0])
                target = 1.1 if key != "peak_bytes" else None
                what = f"growth of {stage}, {key}"
                figures.append(Figure(what=what, value=apart, unit="", target=target))
    return figures


def _measured(rows: list[Row]) -> Measured:
    """Return the figures of the largest round, per report."""
    last = {row["stage"]: row for row in rows}
    reports = last["release"]["reports"]
    cpu = {name: last[name]["cpu_seconds"] / reports for name in ("store", "release", "answer")}
    return Measured(cpu=cpu, disk={k: v / reports for k, v in last["disk"].items() if "bytes" in k})


def _targets(rows: list[Row], *, stand_in: bool) -> list[Figure]:
    """Compare the largest round with the targets."""
    last = {row["stage"]: row for row in rows}
    figures = [
        Figure(
            what=f"serial in the parent, {name}",
            value=last[name]["serial_microseconds"],
            unit="µs",
            target=5,
        )
        for name in ("release", "answer")
    ]
    if not stand_in:
        figures += [
            Figure(
                what=f"{name}, time / limit",
                value=1 / last[name]["share_of_limit"],
                unit="x",
                target=1 / 0.85,
            )
            for name in CURVES
        ]
        curves = sum(last[name]["limit_seconds"] for name in CURVES)
        whole = last["closed to published"]["seconds"]
        value = whole / (curves + last["task"]["seconds"])
        figures.append(
            Figure(
                what="closed to published : limits plus task", value=value, unit="x", target=1.35
            )
        )
    peak = max(row.get("peak_bytes") or 0 for row in rows)
    figures.append(Figure(what="largest process", value=peak / 1e9, unit="GB", target=1.2))
    return figures


def _print(row: Row, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(row), flush=True)
        return
    parts = [f"{row['stage']:<20} {row['reports']:>10,}"]
    for key in (
        *("seconds", "cpu_seconds", "share_of_limit", "share_of_cpu"),
        *("serial_microseconds", "peak_bytes"),
    ):
        value = row.get(key)
        parts.append(f"{'' if value is None else format(value, '.3g'):>10}")
    print(" ".join(parts), flush=True)
