"""BORDER: the commands, each imported only when it is called.

Results go to standard output, everything else to standard error with a `coatcheck:` prefix.
Exit codes: 0 done, 1 refused, 2 misuse.
"""

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
        command = getattr(import_module(module), cmd_name.replace("-", "_"))
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name}")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Error as error:
            click.echo(f"coatcheck: {error}", err=True)
            ctx.exit(2 if isinstance(error, Misuse) else 1)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="coatcheck", message="%(prog)s %(version)s")
def main() -> None:
    """Private individual computation: your own answer, hidden in a crowd."""
