"""Run the benches named on the command line, or all of them."""

import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path

NAMES = sorted(
    file.stem for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_")
)


def main(names: list[str]) -> int:
    """Run each bench and return 1 if one of them missed a target, 2 if one is unknown.

    Everything from the first option on goes to the benches, which parse it.
    """
    names = list(takewhile(lambda name: not name.startswith("--"), names))
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"bench: unknown name {', '.join(unknown)}; the names are {', '.join(NAMES)}")
        return 2
    worst = 0
    for name in names or NAMES:
        if "--json" not in sys.argv:
            print(f"== {name}", flush=True)
        worst = max(worst, import_module(f"bench.{name}").main())
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
