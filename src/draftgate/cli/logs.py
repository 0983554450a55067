"""`draftgate logs`: what engine or sidecar wrote in the background."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from draftgate.cli.runtime import Choice, Runtime, of_what_runs
from draftgate.errors import NotRunning


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    sidecar: Annotated[
        bool, typer.Option("--sidecar", help="The sidecar's instead of the engine's.")
    ] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, help="Only so many of the last lines.")
    ] = None,
    runtime: Choice = None,
) -> None:
    """Print the log of the engine that `draftgate up` started last, phases included."""
    if of_what_runs(runtime) is Runtime.DOCKER:
        from draftgate.runtime import containers

        for data in containers.logs("sidecar" if sidecar else None, follow=follow, lines=lines):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return
    from draftgate.runtime import logfile, native

    path = native.log_path(sidecar=sidecar)
    if not path.exists():
        raise NotRunning("there is no log yet", where=str(path), next_step="draftgate up PROFILE")
    size = path.stat().st_size
    sys.stdout.buffer.write(logfile.last_lines(path, lines, size))
    sys.stdout.buffer.flush()
    if follow:
        for data in logfile.follow(path, size, lambda: native.writes_log(sidecar=sidecar)):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
