"""The commands of the study; without a command, it measures, draws and writes everything."""

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
    commands.add_parser("list", help="list the items, and how many rows of each are on file")
    for kind in ("table", "figure"):
        shown = commands.add_parser(kind, help=f"measure shown {kind} and show it")
        shown.add_argument("name", choices=sorted(i.name for i in items.ITEMS if i.kind == kind))
        _options(shown)
    _options(commands.add_parser("all", help="measure, draw and write everything"))
    _options(commands.add_parser("report", help="draw and write from the rows on file"))
    data = commands.add_parser("data", help="make the data sets from the public originals")
    data.add_argument("originals", type=Path, help="the folder with the originals")
    data.add_argument("folder", type=Path, help="the folder for the .npz files")
    learning = commands.add_parser("learning", help="train models on MNIST, show accuracy")
    learning.add_argument("parts", nargs="*", metavar="PART", help="|".join(LEARNING))
    learning.add_argument("--seeds", type=int, default=5, help="number of seeds, at most 5")
    _options(learning)
    return parser


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small sizes, in a separate folder",
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _learn(args: argparse.Namespace) -> None:
    """Measure some parts and seeds of the study of learning, and show the rows on file."""
    from study import learning, rewards  # noqa: PLC0415 - only here by parts

    for part in args.parts or LEARNING:
        if part not in LEARNING:
            raise Misuse(f"`PART` must be one of {', '.join(LEARNING)}, got {part!r}")
        sheet = rewards.SHEET if part == "rewards" else learning.SHEET
        seeds = rewards.SEEDS[: args.seeds]

        def chosen(cell: Cell, part: str = part) -> bool:
            return cell.get("part", part) == part and cell["seed"] in seeds  # noqa: B023 - the same

        fill(sheet, quick=args.quick, jobs=args.jobs, say=_say, only=chosen)
        (item,) = (i for i in items.ITEMS if i.name == f"learning-{part}")
        print("\n".join(items.shown(item, quick=args.quick)))


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code."""
    args = _parser().parse_args(arguments)
    if args.command == "list":
        print("\n".join(items.listed()))
        return 0
    if args.command == "data":
        from study import originals  # noqa: PLC0415 - only here

        return 0 if originals.convert(args.originals, args.folder, say=print) else 1
    if args.command == "learning":
        _learn(args)
        return 0
    wanted = [i for i in items.ITEMS if args.command in {"all", "report"} or i.name == args.name]
    if args.command != "report":
        for sheet in dict.fromkeys(i.sheet for i in wanted):
            fill(sheet, quick=args.quick, jobs=args.jobs, say=_say)
    for item in wanted:
        print("\n".join(items.shown(item, quick=args.quick)))
    if args.command in {"all", "report"}:
        from study import report  # noqa: PLC0415 - matplotlib only where something is drawn

        report.write(quick=args.quick, say=_say)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Error as error:
        sys.exit(f"study: {error}")
