"""`draftgate down`: stop what runs here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from draftgate.cli.launch import DryRun
from draftgate.cli.runtime import Choice, Runtime, of_what_runs


def down(
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running requests.")] = False,
    runtime: Choice = None,
    dry_run: DryRun = False,
) -> None:
    """Stop the engine, running requests finished first, then the sidecar. Ends with 0 when nothing runs."""
    if of_what_runs(runtime, ours=True) is Runtime.DOCKER:
        from draftgate.runtime import containers

        found = containers.containers()
        if not found:
            print("nothing runs here")
        elif dry_run:
            for one in found:
                print(f"would stop: {one.name}")
        else:
            raise typer.Exit(containers.down(now=now))
        return
    from draftgate.runtime import native

    ended = native.down(lambda text: print(text, file=sys.stderr), now=now, dry_run=dry_run)
    if not ended:
        print("nothing runs here")
    for what in ended:
        print(f"would stop: {what}" if dry_run else f"stopped: {what}")
