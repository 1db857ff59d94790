"""The command line: parse, call the library, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import inspect
import re
import sys
from itertools import pairwise
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from synthstream.cli.audit import audit_command
from synthstream.cli.check import check_command
from synthstream.cli.corrections import forget_command, source_accept, source_list, source_retire
from synthstream.cli.maintenance import backup_command, recover_command, succeed_command, verify_command
from synthstream.cli.plan import ledger_command, plan_command, schema_init
from synthstream.cli.publish import describe_command, publish_command, report_command
from synthstream.cli.questions import compare_command, sample_command, series_command, table_command
from synthstream.cli.reading import two_dates
from synthstream.cli.run import run_command
from synthstream.cli.runtime import STOPPED, fail, ignored, mannered, stopped
from synthstream.cli.status import status_command

# In the order of their use.
COMMANDS = {
    "schema": None,
    "plan": plan_command,
    "check": check_command,
    "run": run_command,
    "status": status_command,
    "sample": sample_command,
    "table": table_command,
    "series": series_command,
    "compare": compare_command,
    "report": report_command,
    "publish": publish_command,
    "describe": describe_command,
    "verify": verify_command,
    "backup": backup_command,
    "recover": recover_command,
    "succeed": succeed_command,
    "ledger": ledger_command,
    "source": None,
    "forget": forget_command,
    "audit": audit_command,
}
# What other tools, and this one's Python, call what is here.
_ELSEWHERE = {
    "schema init": "init draft",
    "run stream.toml": "fit train update release resume --config -c",
    "run --simulate": "simulate dry-run --dry-run",
    "check": "validate",
    "sample": "generate rows export",
    "table": "query",
    "compare": "diff",
    "recover": "restore",
    "ledger": "budget",
    "report --custodian": "evaluate",
    "source list": "list",
    "source accept": "accept",
    "source retire": "retire",
    "--help": "help",
    "--version": "version",
}
_EPILOG = """
The usual order:
  synthstream schema init trips.parquet -o stream.toml
  synthstream plan stream.toml
  synthstream check stream.toml      what the private rows would do to it; private
  synthstream run stream.toml        again whenever a tick has ended
  synthstream status stream.toml
  synthstream sample stream.toml -n 1000 -o rows.parquet
  synthstream table stream.toml zone hour
  synthstream series stream.toml zone --every 1mo
  synthstream report stream.toml -o report.html
  synthstream publish stream.toml site

Exit status:
  0    done, also if nothing was due
  1    verify or audit found something wrong; run left files out, and published all that is due
  2    refused: the message says why, and what to do
  70   an error of this program
  130  stopped by Ctrl-C, 143 by SIGTERM; the same command goes on
"""


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names of commands as the help lists them."""
        return [name for name in COMMANDS if name in self.commands]


class _Command(TyperCommand):
    """A command whose help is plain text: brackets are sections of stream.toml, and no markup of Rich; examples alone
    keep their lines.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        parts = inspect.cleandoc(self.help or "").split("\n\n")
        self.help = "\n\n".join(p if p.startswith("Example") else p.replace("\n", " ") for p in parts)
        texts: list[Any] = [self, *self.params]
        for one in texts:
            one.help = re.sub(r"\[(?=[a-z])", r"\[", one.help or "")


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
schema_app = typer.Typer(no_args_is_help=True, help="Draft a configuration: schema init.")

source_app = typer.Typer(no_args_is_help=True, help="Files that were counted: list, accept as they are now, retire.")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"synthstream {version('synthstream')}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A synthetic copy of a private event stream, kept up to date under one privacy budget."""


app.add_typer(schema_app, name="schema")
app.add_typer(source_app, name="source")
source_app.command("list", cls=_Command)(mannered(source_list))
source_app.command("accept", cls=_Command)(mannered(source_accept))
source_app.command("retire", cls=_Command)(mannered(source_retire))
schema_app.command("init", cls=_Command)(mannered(schema_init))
for _name, _command in COMMANDS.items():
    if _command is not None:
        app.command(_name, cls=_Command)(mannered(_command))


def main() -> None:
    """Entry point. Commands turn their own errors into a message and a status; what was mistyped becomes one here."""
    sys.unraisablehook = ignored
    try:
        status = app(prog_name="synthstream", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        sys.exit(_mistyped(error))
    # Before a command runs, Ctrl-C is a status of its own.
    sys.exit(stopped("Nothing was changed.") if status == STOPPED else status if isinstance(status, int) else 0)


def _mistyped(error: Any) -> int:
    """Say in one line what was mistyped, and where help is."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
        return 2
    context = getattr(error, "ctx", None)
    # An option with too few words is found before there is a context.
    typed = next((f" {word}" for word in sys.argv[1:] if word in COMMANDS), "")
    command = f"synthstream{typed}" if context is None else context.command_path
    words = " ".join(error.format_message().split())
    options = getattr(getattr(error, "param", None), "opts", ())
    value = next((value for option, value in pairwise(sys.argv) if option in options), "")
    if words.startswith("Invalid value") and value not in words:
        words = words.replace(":", f": found {value!r}.", 1)
    if short := re.match(r"Option '(.+)' requires 2 arguments", words):  # all such options take dates
        words = two_dates(short[1])
    if wrong := re.match(r"No such (?:command|option):? '?([\w-]+)", words):
        commands = cast(Any, typer.main.get_command(app)).commands
        meant = [name for name, others in _ELSEWHERE.items() if wrong[1] in others.split()]
        others = [name for name in COMMANDS if any(wrong[1] in one.opts for one in commands[name].params)]
        if meant:
            words = f"{words.partition('.')[0]}. Did you mean '{meant[-1]}'?"
        elif others:
            words = f"No such option: {wrong[1]}. It is one of {', '.join(others)}"
    return fail(f"{words}{'' if words.endswith(('.', '?')) else '.'} Help: {command} --help")
