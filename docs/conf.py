"""The manual as a site: Sphinx over the pages of this folder, with the reference made from code.

`make docs` builds it with warnings as errors. The parts of the reference that repeat the code
(commands, routes) are written anew for each build into build/docs-parts.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ROOT / "build" / "docs-parts"
sys.path.insert(0, str(ROOT / "src"))
# click wraps help at the terminal's width; a page has its own.
os.environ["COLUMNS"] = "88"

import click  # noqa: E402 - after the path

import coatcheck  # noqa: E402 - after the path
from coatcheck.cli import main  # noqa: E402 - after the path
from coatcheck.services.board.routes import BoardService  # noqa: E402 - after the path
from coatcheck.services.relay import RelayService  # noqa: E402 - after the path
from coatcheck.services.server.routes import ServerService  # noqa: E402 - after the path
from coatcheck.services.shuffler.routes import ShufflerService  # noqa: E402 - after the path
from coatcheck.services.web.app import COMMON  # noqa: E402 - after the path
from coatcheck.services.web.routing import Route  # noqa: E402 - after the path
from coatcheck.services.witness import WitnessService  # noqa: E402 - after the path

project = "coatcheck"
author = "The coatcheck authors"
release = version = coatcheck.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "description"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
html_theme = "furo"
html_title = "coatcheck"
html_favicon = str(ROOT / "src/coatcheck/demo/page/static/icon.svg")
exclude_patterns = ["_build"]
myst_heading_anchors = 3
# Pages point to files of the repository that are no pages, and included ones to each other.
suppress_warnings = ["myst.xref_missing"]
pygments_style = "friendly"
# Notebooks are kept without outputs: each build runs them anew.
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True


def _commands() -> str:
    """Print the help of every command."""
    context = click.Context(main, info_name="coatcheck")
    lines = []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is None:
            continue
        lines += _help(command, click.Context(command, info_name=name, parent=context), 2)
    return "\n".join(lines)


def _help(command: click.Command, context: click.Context, level: int) -> list[str]:
    lines = [
        f"{'#' * level} {context.command_path}",
        "",
        "```text",
        command.get_help(context),
        "```",
        "",
    ]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                below = click.Context(inner, info_name=name, parent=context)
                lines += _help(inner, below, level + 1)
    return lines


def _http() -> str:
    """List the routes of each service, from the table that it serves."""
    lines = []
    tables = {
        "shuffler": ShufflerService.table,
        "server": ServerService.table,
        "board": BoardService.table,
        "relay": RelayService.table,
        "witness": WitnessService.table,
        "every service": COMMON,
    }
    for role, routes in tables.items():
        lines += [f"## {role.capitalize()}", "", "| route | what it does |", "|---|---|"]
        lines += [
            f"| `{route.method} {route.path}` | {route.summary}{_asked(route)} |"
            for route in sorted(routes, key=lambda route: (route.path, route.method))
        ]
        lines.append("")
    return "\n".join(lines)


def _asked(route: Route) -> str:
    """Say who may ask, and which headers are read or sent."""
    words = [" For the operator."] if route.operator else []
    words += [f" Header `{one.name}`: {one.description}" for one in (*route.reads, *route.sends)]
    return "".join(words)


PARTS.mkdir(parents=True, exist_ok=True)
for part, make in (("commands", _commands), ("http", _http)):
    (PARTS / f"{part}.md").write_text(make(), encoding="utf-8")
