"""The command line: verbs are registered here and live in modules of their own."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from draftgate import __version__
from draftgate.cli import (
    bench,
    demo,
    diff,
    down,
    drafter,
    engine,
    launch,
    logs,
    profiles,
    render,
    sidecar,
    status,
    up,
)
from draftgate.cli.output import print_error
from draftgate.errors import DraftgateError, ExitCode, FolderUnusable

app = typer.Typer(
    name="draftgate",
    help="Serve one model with vLLM or SGLang, watch what its drafter is worth, and tell the truth about it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"draftgate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Options of every verb; `main` reads --debug itself, since errors reach it past Typer."""


app.command()(profiles.profiles)
app.command()(profiles.show)
app.command()(render.render)
app.command()(diff.diff)
app.add_typer(drafter.app, name="drafter")
app.add_typer(engine.app, name="engine")
app.command()(launch.launch)
app.command()(up.up)
app.command()(status.status)
app.command()(logs.logs)
app.command()(down.down)
app.command()(sidecar.sidecar)
app.command()(bench.bench)
app.command()(demo.demo)


def main() -> None:
    """Run one verb and leave with its exit code; the only place that prints an error."""
    debug = "--debug" in sys.argv
    # Closed by whoever started this: Python has no stream there then, and what is written goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character is no fault of the table's.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (DraftgateError, OSError) as error:
        known = error if isinstance(error, DraftgateError) else _of_the_system(error)
        if debug or known is None:
            _unknown(error, debug=debug)
        print_error(known, as_json="--json" in sys.argv)
        sys.exit(known.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        _unknown(error, debug=debug)


def _of_the_system(error: OSError) -> DraftgateError | None:
    """What can happen to any write, and is nobody's fault here."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return None
    return FolderUnusable(
        "a disk that draftgate writes to is full or read-only",
        # Of an open file the system does not say which: the output may go to one, too.
        where=error.filename or "the output, DRAFTGATE_STATE_DIR or DRAFTGATE_DATA_DIR",
        why=error.strerror,
        next_step="free some, or name other folders with DRAFTGATE_STATE_DIR and DRAFTGATE_DATA_DIR",
    )


def _unknown(error: Exception, *, debug: bool) -> NoReturn:
    if debug:
        raise error
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    print("  This is a fault of draftgate's. Run it again with --debug for the traceback.", file=sys.stderr)
    sys.exit(ExitCode.INTERNAL)
