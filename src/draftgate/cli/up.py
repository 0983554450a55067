"""`draftgate up`: engine and sidecar in the background."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.launch import DryRun, WaitLock
from draftgate.cli.load import load
from draftgate.cli.profiles import Name, Sets
from draftgate.cli.render import compose_text
from draftgate.cli.runtime import Choice, Runtime, for_start
from draftgate.errors import ExitCode

if TYPE_CHECKING:
    from draftgate.runtime.state import Status


def up(
    name: Name,
    sets: Sets = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the engine is ready.")] = False,
    sidecar: Annotated[bool, typer.Option(help="Start the sidecar too.")] = True,
    wait_lock: WaitLock = 0.0,
    runtime: Choice = None,
    dry_run: DryRun = False,
) -> None:
    """Serve a profile in the background, with its sidecar.

    Ends with 7 when something runs already, 8 when another engine holds the GPU lock, 18 when Docker cannot
    be used. With --wait it ends as the launch does when that fails; Ctrl-C ends the waiting alone.
    """
    from draftgate.runtime import native
    from draftgate.runtime.plan import plan

    loaded = load(name, sets or [])
    if for_start(runtime, loaded.pin) is Runtime.DOCKER:
        if not sidecar:
            raise typer.BadParameter("the sidecar is one of the containers", param_hint="--no-sidecar")
        text = compose_text([name], sets or [])
        _in_containers(loaded.profile.name, text, wait=wait, wait_lock_seconds=wait_lock, dry_run=dry_run)
        return
    planned = plan(
        name,
        sets or [],
        loaded.profile,
        loaded.command.base_url,
        sidecar=sidecar,
        wait_lock_seconds=wait_lock,
    )
    if dry_run:
        native.check(planned)
        for argv in filter(None, (planned.launcher, planned.sidecar)):
            print(f"would start: {shlex.join(argv)}")
        return
    run = native.up(planned)
    print(f"{run.profile}: started (pid {run.launcher.pid}), will serve {run.base_url}")
    if run.sidecar_url:
        print(f"metrics: {run.sidecar_url}/metrics")
    if not wait:
        print("draftgate status tells when it is ready")
        return
    try:
        status = native.await_ready(_show)
    except KeyboardInterrupt:
        print("it goes on starting in the background; stop it with: draftgate down", file=sys.stderr)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    print(f"{run.profile}: ready at {run.base_url}")
    raise typer.Exit(status.exit_code)


def _in_containers(profile: str, text: str, *, wait: bool, wait_lock_seconds: float, dry_run: bool) -> None:
    from draftgate.host.lock import refuse_if_held
    from draftgate.runtime import containers
    from draftgate.settings import settings

    containers.refuse_if_running()
    theirs, own = containers.lock_folder(), settings().lock_dir
    if theirs != own:
        print(f"note: containers take the GPU lock in {theirs}, native engines in {own}", file=sys.stderr)
        print(f"  To have one engine at a time, give both one: DRAFTGATE_LOCK_DIR={theirs}", file=sys.stderr)
    if not wait_lock_seconds:
        refuse_if_held(containers.lock_folder())
    if dry_run:
        print(f"would be started with {shlex.join(containers.start_command(profile))}:")
        print(text, end="")
        return
    code = containers.up(text, profile, wait=wait)
    if code == ExitCode.INTERRUPTED:
        print("what was started goes on; stop it with: draftgate down --runtime docker", file=sys.stderr)
    if code:
        raise typer.Exit(code)
    print("draftgate status tells when it is ready" if not wait else f"{profile}: ready")


def _show(status: Status) -> None:
    if status.phase is not None:
        progress = f" {status.progress[0]}/{status.progress[1]}" if status.progress else ""
        print(f"  {status.phase}{progress}", file=sys.stderr)
