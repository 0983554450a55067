"""`draftgate launch`: one engine in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from draftgate.cli.load import Loaded, load
from draftgate.cli.profiles import Name, Sets
from draftgate.engine.adapter import command as engine_command
from draftgate.errors import CheckpointUnreadable, ProfileError
from draftgate.profile.model import Profile

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
    profile = _with_drafter(loaded, write=not dry_run)
    command = engine_command(profile, loaded.pin, loaded.contract)
    if dry_run:
        from draftgate.render.command import as_shell

        print(f"would be run by {python}, at {command.base_url}:")
        print(as_shell(command))
        return
    from draftgate.launch.launcher import launch as run

    raise typer.Exit(run(profile, command, python, wait_lock_seconds=wait_lock))


def _with_drafter(loaded: Loaded, *, write: bool) -> Profile:
    """The profile with a drafter that the pin reads as ``drafter.aux_layers`` says, its own config.json read.

    Args:
        write: make the overlay; else only see that it can be made.
    """
    profile, drafter, target = loaded.profile, loaded.profile.drafter, loaded.profile.target
    if drafter is None:
        return profile
    from draftgate.checkpoint.config import read_drafter, read_target
    from draftgate.checkpoint.folder import find_folder
    from draftgate.launch.overlay import overlay, plan

    try:
        folder = find_folder(drafter.model, drafter.revision)
        config = read_drafter(folder)
    except CheckpointUnreadable:
        if drafter.aux_layers is None and not drafter.model.startswith("/"):
            return profile  # the engine fetches it
        raise
    if drafter.architecture not in (None, config.architecture):
        what = f"its config.json says {config.architecture}"
        raise ProfileError(profile.name, (loaded.fault("drafter.architecture", what),))
    known = drafter.model_copy(update={"architecture": config.architecture})
    loaded.refuse(profile.model_copy(update={"drafter": known}))
    try:
        shape = read_target(find_folder(target.model, target.revision))
    except CheckpointUnreadable:
        if drafter.aux_layers is None:
            return profile  # the engine fetches it, and takes what the drafter's config.json gives
        raise
    graphs = not profile.execution.eager
    plan(config, loaded.pin, shape, drafter.aux_layers, graphs=graphs)
    if drafter.aux_layers is None or not write:
        return profile
    path = overlay(folder, loaded.pin, shape, drafter.aux_layers, name=drafter.model, graphs=graphs)
    # A folder has no revision.
    served = drafter.model_copy(update={"model": str(path), "revision": None})
    return profile.model_copy(update={"drafter": served})
