"""The `infinipot` command: its sub-commands, and how errors look (one line, exit code 2)."""

import sys

import typer

from infinipot import __version__
from infinipot.cli import (
    ask,
    bench,
    chat,
    demo,
    eval,
    harness,
    inspect,
    mcp,
    models,
    options,
    pots,
    read,
    recipes,
    serve,
)
from infinipot.cli.expand import flag
from infinipot.common.out_of_memory import out_of_memory
from infinipot.errors import InfiniPotError

app = typer.Typer(
    help="Read text of any length in a fixed number of KV-cache entries.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (ask.ask, bench.bench, chat.chat, demo.demo, inspect.inspect, read.read, recipes.recipes):
    app.command(command.__name__)(command)
app.command("eval")(eval.evaluate)
passing = app.command("harness", help=harness.HELP, context_settings=harness.CONTEXT, no_args_is_help=True)
passing(harness.harness)
for command in (eval.report, mcp.mcp, options.options, serve.serve):
    app.command(command.__name__)(command)
app.add_typer(models.app, name="models")
app.add_typer(pots.app, name="pots")
INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        print(f"infinipot {__version__}")
        raise typer.Exit


VERSION = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version.")


@app.callback()
def root(version: bool = VERSION) -> None:
    """Read text of any length in a fixed number of KV-cache entries."""


def run() -> None:
    """Entry point of the command."""
    try:
        status = app(standalone_mode=False)
        if status == INTERRUPTED:  # typer turns Ctrl-C into this, silently
            _fail("interrupted", status)
    except InfiniPotError as error:
        status = _fail(error.worded(flag), error.exit_code)
    except typer.TyperException as error:  # wrong usage; empty when the help was shown instead
        status = _fail(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        status = _fail("interrupted", INTERRUPTED)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        status = _fail("out of memory: use a smaller --capacity or model, or a recipe that bounds memory", 2)
    sys.exit(status or 0)


def _fail(message: str, status: int) -> int:
    if message:
        print(f"infinipot: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    run()
