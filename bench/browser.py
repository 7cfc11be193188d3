"""CPU time in Node until the JavaScript client knows the promise of given terms.

The committed bundle builds each mechanism from its parameters and amplifies its law.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from bench import Figure, show
from bench.examination import strangers
from coatcheck.domains import Box, Categories, Product
from coatcheck.randomizers import BoundedResponse, fieldwise

TARGET: Final = 2_000.0  # milliseconds
CROWDS: Final = ((50_000, 1e-6), (1_000_000_000, 1e-12))
_BUNDLE: Final = Path(__file__).parents[1] / "src/coatcheck/demo/page/static/client.js"
_SCRIPT: Final = """
import { readFileSync } from "node:fs";
const { randomizerOf, amplify } = await import(process.argv[1]);
const found = JSON.parse(readFileSync(0, "utf8")).map(({ params, crowd, delta }) => {
  const start = process.cpuUsage();
  amplify(randomizerOf(params).law(), { crowd, delta });
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e3;
});
console.log(JSON.stringify(found));
"""


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    square = Box((0.0, 0.0), (1.0, 1.0))
    both = Product({"place": square, "likes": Categories(("tea", "coffee", "milk"))})
    mechanisms = {
        "bounded": BoundedResponse(domain=square, epsilon=1.0, radius=0.3),
        "a place and a label": fieldwise(epsilon=1.0, domain=both),
        **{name: make(1.0) for name, make in strangers()},
    }
    cases: list[dict[str, Any]] = [
        {"what": f"{name}: ε 1, crowd {crowd:,}", "randomizer": one, "crowd": crowd, "delta": delta}
        for name, one in mechanisms.items()
        for crowd, delta in CROWDS
    ]
    return show(
        [
            Figure(what=one["what"], value=ms, unit="ms", target=TARGET)
            for one, ms in zip(cases, _measured(cases), strict=True)
        ]
    )


def _measured(cases: list[dict[str, Any]]) -> list[float]:
    """Return the milliseconds of each mechanism, measured with the bundle in Node."""
    node = shutil.which("node")
    if node is None:
        raise SystemExit("bench browser needs Node 20 or newer on the path")
    documents = [
        {"params": one["randomizer"].params(), "crowd": one["crowd"], "delta": one["delta"]}
        for one in cases
    ]
    done = subprocess.run(  # noqa: S603 - our own script
        [node, "--no-warnings", "--input-type=module", "--eval", _SCRIPT, str(_BUNDLE)],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        check=True,
    )
    milliseconds: list[float] = json.loads(done.stdout)
    return milliseconds
