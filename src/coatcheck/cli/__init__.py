"""BORDER: the commands, each imported only when it is called.

Results go to standard output, everything else to standard error with a `coatcheck:` prefix.
Exit codes: 0 done, 1 refused, 2 misuse.
"""

from functools import partial
from importlib import import_module
from typing import Any

import click

from coatcheck.errors import Error, Misuse

COMMANDS = {
    "amplify": "coatcheck.cli.privacy",
    "answer": "coatcheck.cli.shuffle_and_answer",
    "calibrate": "coatcheck.cli.privacy",
    "check-task": "coatcheck.cli.check_task",
    "collect": "coatcheck.cli.person",
    "compare": "coatcheck.cli.compare",
    "compose": "coatcheck.cli.curve",
    "curve": "coatcheck.cli.curve",
    "demo": "coatcheck.cli.demo",
    "inspect": "coatcheck.cli.inspect",
    "join": "coatcheck.cli.person",
    "keygen": "coatcheck.cli.terms",
    "ledger": "coatcheck.cli.ledger",
    "letters": "coatcheck.cli.take_part",
    "plan": "coatcheck.cli.plan",
    "read": "coatcheck.cli.person",
    "round": "coatcheck.cli.round",
    "serve": "coatcheck.cli.serve",
    "shuffle": "coatcheck.cli.shuffle_and_answer",
    "simulate": "coatcheck.cli.simulate",
    "take-part": "coatcheck.cli.take_part",
    "terms": "coatcheck.cli.terms",
    "tokens": "coatcheck.cli.tokens",
    "write": "coatcheck.cli.person",
}


class _Lazy(click.Group):
    """A group whose commands are imported when asked for, so that `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        try:
            command = getattr(import_module(module), cmd_name.replace("-", "_"))
        except ModuleNotFoundError as error:
            # Still listed by --help; it says what it needs when it is called.
            needs = _needs(error)
            anything = {"ignore_unknown_options": True, "allow_extra_args": True}
            refuse = partial(_refuse, needs)
            return click.Command(cmd_name, anything, callback=refuse, help=str(needs))
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name}")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (Error, ModuleNotFoundError) as caught:
            error = _needs(caught) if isinstance(caught, ModuleNotFoundError) else caught
            click.echo(f"coatcheck: {error}", err=True)
            ctx.exit(2 if isinstance(error, Misuse) else 1)


def _refuse(error: Misuse) -> None:
    raise error


def _needs(error: ModuleNotFoundError) -> Misuse:
    """Say which extra is missing, unless the module is our own."""
    if (error.name or "coatcheck").startswith("coatcheck"):
        raise error
    return Misuse(f"this command needs {error.name}: pip install 'coatcheck[serve]'")


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="coatcheck", message="%(prog)s %(version)s")
def main() -> None:
    """Private individual computation: your own answer, hidden in a crowd."""
