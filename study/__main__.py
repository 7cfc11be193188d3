"""The commands of the study; without one, everything is measured, drawn and written."""

import argparse
import sys
import time
from pathlib import Path

from study.sheets import one_thread

one_thread()  # before anything loads numpy

from coatcheck.errors import Error, Misuse  # noqa: E402 - as above
from study import items  # noqa: E402 - as above
from study.sheets import Cell, fill  # noqa: E402 - as above

LEARNING = ("network", "linear", "law", "ablations", "rewards")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__)
    _options(parser)
    parser.set_defaults(command="all")
    commands = parser.add_subparsers(dest="command", required=False)
    commands.add_parser("list", help="say what there is, and how much of it is on file")
    for kind in ("table", "figure"):
        one = commands.add_parser(kind, help=f"measure one {kind} and show it")
        one.add_argument("name", choices=sorted(i.name for i in items.ITEMS if i.kind == kind))
        _options(one)
    _options(commands.add_parser("all", help="measure everything, draw, and write the report"))
    _options(commands.add_parser("report", help="draw and write the report from what is on file"))
    made = commands.add_parser("data", help="make the data sets from the public originals")
    made.add_argument("originals", type=Path, help="the folder with the originals")
    made.add_argument("folder", type=Path, help="where the .npz files go, or are")
    taught = commands.add_parser("learning", help="teach models on MNIST, and show how well")
    taught.add_argument("parts", nargs="*", metavar="PART", help="|".join(LEARNING))
    taught.add_argument("--seeds", type=int, default=5, help="how many of them, at most 5")
    _options(taught)
    return parser


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes, minutes, kept apart")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _learn(asked: argparse.Namespace) -> None:
    """Measure parts of the study of learning, some seeds of them, and show what is on file."""
    from study import learning, rewards  # noqa: PLC0415 - only here by parts

    for part in asked.parts or LEARNING:
        if part not in LEARNING:
            raise Misuse(f"the parts are {', '.join(LEARNING)}, not {part!r}")
        sheet = rewards.SHEET if part == "rewards" else learning.SHEET
        seeds = rewards.SEEDS[: asked.seeds]

        def chosen(cell: Cell, part: str = part) -> bool:
            return cell.get("part", part) == part and cell["seed"] in seeds  # noqa: B023 - the same

        fill(sheet, quick=asked.quick, jobs=asked.jobs, say=_say, only=chosen)
        (item,) = (i for i in items.ITEMS if i.name == f"learning-{part}")
        print("\n".join(items.shown(item, quick=asked.quick)))


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.command == "list":
        print("\n".join(items.listed()))
        return 0
    if asked.command == "data":
        from study import originals  # noqa: PLC0415 - only here

        return 0 if originals.convert(asked.originals, asked.folder, say=print) else 1
    if asked.command == "learning":
        _learn(asked)
        return 0
    wanted = [i for i in items.ITEMS if asked.command in {"all", "report"} or i.name == asked.name]
    if asked.command != "report":
        for sheet in dict.fromkeys(i.sheet for i in wanted):
            fill(sheet, quick=asked.quick, jobs=asked.jobs, say=_say)
    for item in wanted:
        print("\n".join(items.shown(item, quick=asked.quick)))
    if asked.command in {"all", "report"}:
        from study import report  # noqa: PLC0415 - matplotlib only where something is drawn

        report.write(quick=asked.quick, say=_say)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Error as error:
        sys.exit(f"study: {error}")
