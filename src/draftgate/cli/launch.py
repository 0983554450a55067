"""`draftgate launch`: one engine in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.load import Loaded, load
from draftgate.cli.profiles import Name, Sets
from draftgate.cli.served import served_drafter
from draftgate.engine.adapter import command as engine_command
from draftgate.profile.model import Profile

if TYPE_CHECKING:
    from draftgate.launch.overlay import Overlay

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
    overlay = served_drafter(loaded)
    profile = _with_drafter(loaded, overlay)
    command = engine_command(profile, loaded.pin, loaded.contract)
    if dry_run:
        from draftgate.render.command import as_shell

        print(f"would be run by {python}, at {command.base_url}:")
        print(as_shell(command))
        return
    if overlay is not None:
        overlay.make()
    from draftgate.launch.launcher import launch as run

    raise typer.Exit(run(profile, command, python, wait_lock_seconds=wait_lock))


def _with_drafter(loaded: Loaded, overlay: Overlay | None) -> Profile:
    profile = loaded.profile
    if profile.drafter is None or overlay is None:
        return profile
    # A folder has no revision.
    served = profile.drafter.model_copy(update={"model": str(overlay.path), "revision": None})
    return profile.model_copy(update={"drafter": served})
