"""BORDER: the table of commands; a command's module is imported when the command is called.

Results go to standard output, everything else goes to standard error with the prefix `coatcheck:`.
Exit codes: 0 done, 1 refused, 2 misuse.
"""

from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any

import click

from coatcheck.errors import Error, Misuse

GROUPS = {
    "Try it": {
        "demo": "coatcheck.cli.demo",
        "simulate": "coatcheck.cli.simulate",
        "compare": "coatcheck.cli.plan",
    },
    "Plan and count privacy": {
        "plan": "coatcheck.cli.plan",
        "amplify": "coatcheck.cli.privacy",
        "calibrate": "coatcheck.cli.privacy",
        "compose": "coatcheck.cli.privacy",
        "curve": "coatcheck.cli.privacy",
        "check-task": "coatcheck.cli.simulate",
    },
    "Take part": {
        "me": "coatcheck.cli.me",
        "take-part": "coatcheck.cli.take_part",
        "letters": "coatcheck.cli.take_part",
        "ledger": "coatcheck.cli.me",
    },
    "Run a role": {
        "serve": "coatcheck.cli.operate",
        "round": "coatcheck.cli.operate",
        "check": "coatcheck.cli.operate",
        "keygen": "coatcheck.cli.protocol_steps",
        "terms": "coatcheck.cli.protocol_steps",
        "operator": "coatcheck.cli.operate",
        "tokens": "coatcheck.cli.operate",
    },
    "A round over files, step by step": {
        "join": "coatcheck.cli.protocol_steps",
        "shuffle": "coatcheck.cli.protocol_steps",
        "answer": "coatcheck.cli.protocol_steps",
        "collect": "coatcheck.cli.protocol_steps",
        "write": "coatcheck.cli.protocol_steps",
        "read": "coatcheck.cli.protocol_steps",
        "inspect": "coatcheck.cli.protocol_steps",
    },
}
"""The commands as `--help` groups them, each with its module."""

_PROFILED = {"trust", "epsilon", "delta", "ledger"}
"""Options whose values come from the person's profile, if there is one."""

_MAX_SENTENCE = 1_000  # characters, more than any help sentence has: click would cut a longer one
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}


class Commands(click.Group):
    """A group whose `--help` shows each command's first sentence in full, wrapped and not cut."""

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:
        """Return the names of the commands under their headings in `--help`."""
        return {"Commands": self.list_commands(ctx)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; click calls this."""
        for title, names in self.sections(ctx).items():
            with formatter.section(title):
                commands = [(name, self.get_command(ctx, name)) for name in names]
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(_MAX_SENTENCE))
                        for name, command in commands
                        if command
                    ]
                )


class _Lazy(Commands):
    """A group that imports a command when it is called, so that `--help` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def sections(self, ctx: click.Context) -> dict[str, list[str]]:  # noqa: ARG002 - as above
        return {title: list(names) for title, names in GROUPS.items()}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            similar = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {similar[0]}?" if similar else "`coatcheck --help` lists them all"
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        try:
            command = getattr(import_module(module), cmd_name.replace("-", "_"))
        except ModuleNotFoundError as error:
            # `--help` still lists the command; when called, it names the missing extra.
            missing_extra = _missing_extra(error)
            any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
            refuse = partial(_raise, missing_extra)
            return click.Command(cmd_name, any_arguments, callback=refuse, help=str(missing_extra))
        if not isinstance(command, click.Command):
            raise TypeError(f"{module} has no command {cmd_name}")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.MissingParameter as missing:
            if missing.param is None or missing.param.name not in _PROFILED:
                raise
            message = missing.format_message().rstrip(".")
            raise click.UsageError(
                f"{message}; or set it once for all your rounds: `coatcheck me begin --epsilon 3`,"
                " then `coatcheck me trust server=FILE shuffler=FILE board=FILE`",
                missing.ctx,
            ) from None
        except (Error, ModuleNotFoundError) as caught:
            error = _missing_extra(caught) if isinstance(caught, ModuleNotFoundError) else caught
            click.echo(f"coatcheck: {error}", err=True)
            ctx.exit(2 if isinstance(error, Misuse) else 1)


class _Profile(dict[str, Any]):
    """Defaults from the person's profile, read only when one of their commands runs."""

    def get(self, key: str, default: Any = None) -> Any:
        if key not in {"take-part", "letters"}:
            return default
        from coatcheck.cli.profile import defaults  # noqa: PLC0415 - read only here

        return defaults().get(key, default)


def _raise(error: Misuse) -> None:
    raise error


def _missing_extra(error: ModuleNotFoundError) -> Misuse:
    """Return an error that names the missing extra; raise it again if the module is our own."""
    if (error.name or "coatcheck").startswith("coatcheck"):
        raise error
    return Misuse(f"this command needs {error.name}: pip install 'coatcheck[serve]'")


@click.group(
    cls=_Lazy,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "default_map": _Profile(),
    },
)
@click.version_option(package_name="coatcheck", message="%(prog)s %(version)s")
def main() -> None:
    """Private individual computation: your own answer, hidden in a crowd."""
