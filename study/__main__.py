"""The commands of the study: list | table NAME | figure NAME | learning | all | report."""

import argparse
import sys
import time

from study.sheets import one_thread

one_thread()  # before anything loads numpy

from coatcheck.errors import Error, Misuse  # noqa: E402 - as above
from study import items  # noqa: E402 - as above
from study.sheets import fill  # noqa: E402 - as above

LEARNING = ("linear", "network", "ablations", "rewards", "reports")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="say what there is, and how much of it is on file")
    for kind in ("table", "figure"):
        one = commands.add_parser(kind, help=f"measure one {kind} and show it")
        one.add_argument("name", choices=sorted(i.name for i in items.ITEMS if i.kind == kind))
        _options(one)
    _options(commands.add_parser("all", help="measure everything, draw, and write the report"))
    _options(commands.add_parser("report", help="draw and write the report from what is on file"))
    taught = commands.add_parser("learning", help="teach models on MNIST, and print how well")
    taught.add_argument("parts", nargs="*", metavar="PART", help="|".join(LEARNING))
    taught.add_argument("--seeds", type=int, default=5, help="how many, at most 5")
    return parser


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes, minutes, kept apart")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code."""
    asked = _parser().parse_args(arguments)
    if asked.command == "list":
        print("\n".join(items.listed()))
        return 0
    if asked.command == "learning":
        from study import learning  # noqa: PLC0415 - loads MNIST

        for part in asked.parts or LEARNING:
            if part not in LEARNING:
                raise Misuse(f"the parts are {', '.join(LEARNING)}, not {part!r}")
            learning.show(part, seeds=asked.seeds)
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
