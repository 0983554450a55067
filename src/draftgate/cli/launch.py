"""`draftgate launch`: one engine in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from draftgate.cli.load import load
from draftgate.cli.profiles import Name, Sets

WaitLock = Annotated[
    float,
    typer.Option(
        "--wait-lock",
        metavar="SECONDS",
        min=0,
        help="Wait so long for another engine to end; 0 refuses at once.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def launch(name: Name, sets: Sets = None, wait_lock: WaitLock = 0.0, dry_run: DryRun = False) -> None:
    """Serve a profile in the foreground: lock, start, phases, drain on SIGTERM or Ctrl-C.

    Ends with 130 or 143 after Ctrl-C or SIGTERM, 8 when another engine runs, 9 when the engine died, 12 when
    it was not ready in time. Ctrl-C while it drains ends it at once.
    """
    from draftgate.runtime.environment import engine_python

    loaded = load(name, sets or [])
    python = engine_python(loaded.pin)
    if dry_run:
        from draftgate.render.command import as_shell

        print(f"would be run by {python}, at {loaded.command.base_url}:")
        print(as_shell(loaded.command))
        return
    from draftgate.launch.launcher import launch as run

    raise typer.Exit(run(loaded.profile, loaded.command, python, wait_lock_seconds=wait_lock))
