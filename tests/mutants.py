"""Mutation testing: change one thing in a module, run its tests, and see whether they notice.

    python tests/mutants.py --count 100 --seed 1         random mutants over all the modules
    python tests/mutants.py --module client --all        every mutant of one module

`make mutants` runs it. Each worker has a copy of the repository of its own, so the tree that you
work on is never changed. A mutant that no test notices is printed with its line: it is a missing
test, or a change that means nothing.
"""

import argparse
import ast
import compileall
import importlib
import json
import os
import random
import resource
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

import pytest

ROOT = Path(__file__).parent.parent
LIMIT = 120
"""Seconds of computing after which the tests of a mutant end: a loop without an end is noticed."""

CAPS = (
    "tests/randomizers/test_edges.py tests/randomizers/test_exactness.py"
    " tests/contracts/test_every_randomizer.py"
    " -k '(edges or minkowski or bounded) and not draws_follow'"
)
ANSWERS = (
    "tests/services/server/test_pipeline.py -k 'pointing and parts_give or nobody_has or by_region'"
)
MODULES = {
    "protocol/client": "tests/protocol/test_client.py tests/attacks/test_hostile_terms.py"
    " tests/services/person/test_session.py",
    "protocol/shuffler": "tests/protocol/test_shuffler.py tests/services/shuffler/test_intake.py",
    "protocol/server": "tests/protocol/test_server.py tests/services/server/test_refusals.py",
    "protocol/state_machine": "tests/protocol/test_shuffler.py tests/protocol/test_server.py"
    " tests/protocol/test_state_machine.py tests/project/test_spec.py",
    "protocol/agreement": "tests/protocol/test_terms.py tests/attacks/test_split_terms.py"
    " tests/protocol/test_client.py",
    "protocol/log/verification": "tests/protocol/test_board.py"
    " tests/services/person/test_board_view.py",
    "protocol/wire/batches": "tests/protocol/test_largest_round.py"
    " tests/protocol/wire/test_batches.py",
    "accounting/ledger": "tests/accounting/test_ledger.py tests/accounting/test_charges.py"
    " tests/accounting/test_ledger_file.py",
    "accounting/privacy_filter": "tests/accounting/test_privacy_filter.py"
    " tests/accounting/test_ledger.py",
    "accounting/amplification": "tests/accounting/test_amplification.py"
    " tests/accounting/test_certificate.py -k 'not fuzz'",
    "services/shuffler/routes": "tests/services/shuffler/test_intake.py"
    " tests/services/shuffler/test_closing.py tests/services/shuffler/test_admission.py",
    "services/server/pipeline": ANSWERS,
    "services/server/task_stage": ANSWERS,
    "services/ray_runner": "tests/services/test_ray_driver.py tests/services/test_ray_settings.py",
    "stores/blobs": "tests/contracts/test_every_blob_store.py",
    "stores/round_keys": "tests/attacks/test_erasure.py"
    " -k '(keys or key_ or folder) and not postgresql'",
    "randomizers/contract": CAPS,
    "randomizers/minkowski": CAPS,
}
"""The modules on which a person's privacy rests most, and the quick tests that are about them."""

LIBRARIES = (
    "click",
    "httpx2",
    "hypothesis",
    "msgspec",
    "numpy",
    "psycopg",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
)

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in",
    "not in": "in", "is": "is not", "is not": "is", "and": "or", "or": "and", "not": "",
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "**": "*",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two offsets of a module becomes another."""

    module: str
    line: int
    start: int
    end: int
    text: str
    kind: str


def mutants_of(module: str) -> list[Mutant]:
    """List every change that is tried on a module."""
    source = _path(ROOT, module).read_text("utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def at(line: int, column: int) -> int:
        # The syntax tree counts columns in bytes of UTF-8.
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def begin(node: ast.expr | ast.stmt) -> int:
        return at(node.lineno, node.col_offset)

    def end(node: ast.expr | ast.stmt) -> int:
        return at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    found = []
    for node in _code(ast.parse(source)):
        for first, last, text, kind in _changes(node, begin, end):
            before = source[first:last]
            after = _swapped(before) if text is None else text
            if before != after:
                found.append(Mutant(module, node.lineno, first, last, after, kind))  # type: ignore[attr-defined]
    return found


def _swapped(gap: str) -> str:
    """Replace the operator between two operands, and keep brackets and spaces around it."""
    operator = gap.strip(" ()\n")
    return gap.replace(operator, SWAPS[operator], 1) if operator in SWAPS else gap


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over what runs: no annotations, docstrings, printed texts or imports."""
    skipped = (ast.Import, ast.ImportFrom, ast.arg, ast.JoinedStr)
    for name, value in ast.iter_fields(node):
        if name == "keywords" and isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            continue  # strict=True says what is so anyway
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, skipped):
                continue
            if name in {"annotation", "returns"} or _says_nothing(child):
                continue
            yield child
            yield from _code(child)


def _says_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in {"frozen", "kw_only", "maxsize"}
    if isinstance(node, ast.FunctionDef):
        return node.name in {"__repr__", "__rich_repr__"}
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node, begin, end) -> Iterator[tuple[int, int, str | None, str]]:  # type: ignore[no-untyped-def] # the two offsets of mutants_of
    """Yield the places to change; None stands for the operator's counterpart."""
    if isinstance(node, ast.Compare):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            yield end(left), begin(right), None, "comparison"
    elif isinstance(node, ast.BoolOp):
        yield end(node.values[0]), begin(node.values[1]), None, "logic"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield begin(node), begin(node.operand), None, "negation"
    elif isinstance(node, ast.BinOp):
        yield end(node.left), begin(node.right), None, "arithmetic"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield begin(node), end(node), str(not node.value), "constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield begin(node), end(node), f"{node.value + 1!r}", "constant"
    elif isinstance(node, ast.If) and any(isinstance(one, ast.Raise) for one in node.body):
        yield begin(node.test), end(node.test), "False", "guard"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield begin(node), end(node), "pass", "call"


def _path(root: Path, module: str) -> Path:
    return root / "src" / "coatcheck" / f"{module}.py"


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Run the module's tests on a copy with the change in it."""
    path = _path(copy, mutant.module)
    source = path.read_text("utf-8")
    path.write_text(source[: mutant.start] + mutant.text + source[mutant.end :], "utf-8")
    try:
        return tried(MODULES[mutant.module], copy) != 0
    finally:
        path.write_text(source, "utf-8")


def tried(tests: str, copy: Path, *, keep: bool = False) -> int:
    """Run tests of a copy in a child of this process, which has loaded the libraries already."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir(copy)
            with Path(f"{copy}.log").open("wb") as log:
                for stream in (1, 2):
                    os.dup2(log.fileno(), stream)
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            sys.path.insert(0, str(copy / "src"))
            os.environ["PYTHONPATH"] = str(copy / "src")
            sys.dont_write_bytecode = not keep
            # A seedless search would let a mutant live or die by luck from run to run.
            words = ["-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--hypothesis-seed=1"]
            words += ["-W", "ignore:Module already imported"]
            code = pytest.main([*words, *shlex.split(tests)])
            sys.stdout.flush()
            os._exit(int(code))
        finally:
            os._exit(1)
    _, ended = os.waitpid(child, 0)
    return ended


def load_libraries() -> None:
    """Load what the tests need besides this repository, once for all their processes."""
    for name in LIBRARIES:
        importlib.import_module(name)


def run(mutants: list[Mutant], *, jobs: int) -> dict[Mutant, bool]:
    """Try mutants side by side, each worker on a copy of the repository."""
    verdicts: dict[Mutant, bool] = {}
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        kept = shutil.ignore_patterns(".git", ".venv", "__pycache__", "node_modules", "build")
        for number in range(jobs):
            copy = Path(shutil.copytree(ROOT, Path(folder) / str(number), ignore=kept))
            compileall.compile_dir(copy / "src", quiet=1)
            copies.put(copy)
        for module in dict.fromkeys(mutant.module for mutant in mutants):
            begun = time.monotonic()
            if tried(MODULES[module], copy, keep=True):
                log = Path(f"{copy}.log").read_text("utf-8")
                raise SystemExit(f"the tests of {module} fail without a change:\n{log}")
            print(f"{module}: its tests take {time.monotonic() - begun:.0f} s", flush=True)

        def one(mutant: Mutant) -> None:
            copy = copies.get()
            verdicts[mutant] = is_killed(mutant, copy)
            copies.put(copy)
            told = "killed " if verdicts[mutant] else "SURVIVED"
            print(
                f"{told} {mutant.module}:{mutant.line} {mutant.kind} -> {mutant.text.strip()}",
                flush=True,
            )

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, mutants))
    return verdicts


def main() -> int:
    """Try mutants and print a table, one row per module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--module", action="append", help="only modules whose name has this in it")
    parser.add_argument("--all", action="store_true", help="every mutant, not a random choice")
    parser.add_argument("--json", type=Path, help="write each verdict to this file")
    asked = parser.parse_args()
    names = [name for name in MODULES if not asked.module or any(m in name for m in asked.module)]
    mutants = [mutant for name in names for mutant in mutants_of(name)]
    if not asked.all and len(mutants) > asked.count:
        mutants = random.Random(asked.seed).sample(mutants, asked.count)  # noqa: S311 - a choice of tests
    verdicts = run(mutants, jobs=asked.jobs)
    print("\n| module | mutants | killed |\n|---|---|---|")
    for name in names:
        mine = [killed for mutant, killed in verdicts.items() if mutant.module == name]
        print(f"| {name} | {len(mine)} | {sum(mine)} |")
    print(f"| all | {len(verdicts)} | {sum(verdicts.values())} |")
    if asked.json:
        rows = [asdict(mutant) | {"killed": killed} for mutant, killed in verdicts.items()]
        asked.json.write_text(json.dumps(rows, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
