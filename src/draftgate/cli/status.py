"""`draftgate status`: what runs here, in truth."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json
from draftgate.cli.runtime import Choice, Runtime, of_what_runs
from draftgate.errors import ExitCode

if TYPE_CHECKING:
    from draftgate.runtime.state import Status


def status(
    as_json: Json = False,
    ready: Annotated[
        bool, typer.Option("--ready", help="End with 12 when what lives is not ready yet.")
    ] = False,
    runtime: Choice = None,
) -> None:
    """Show engine and sidecar.

    Ends with 0 when all that was started lives, 9 when some of it died, 11 when nothing runs.
    """
    from draftgate.runtime import native
    from draftgate.runtime.state import State

    if of_what_runs(runtime) is Runtime.DOCKER:
        _containers(as_json=as_json, ready=ready)
        return

    found = native.status()
    if as_json:
        print_json({**asdict(found), "exit_code": found.exit_code})
    else:
        print_table(("PART", "STATE", "PROFILE", "PID", "URL", "SINCE", "NOTE"), _rows(found))
    late = ready and found.exit_code is ExitCode.OK and found.state is not State.READY
    raise typer.Exit(ExitCode.TIMED_OUT if late else found.exit_code)


def _containers(*, as_json: bool, ready: bool) -> None:
    from draftgate.runtime import containers

    found = containers.containers()
    code = containers.exit_code(found, ready=ready)
    if as_json:
        print_json({"containers": [asdict(one) for one in found], "exit_code": code})
    else:
        rows = [
            (o.service, o.state, "" if o.code is None else str(o.code), o.image, o.started_at) for o in found
        ]
        print_table(("SERVICE", "STATE", "CODE", "IMAGE", "STARTED"), rows)
    raise typer.Exit(code)


def _rows(found: Status) -> list[tuple[str, ...]]:
    progress = f" {found.progress[0]}/{found.progress[1]}" if found.progress else ""
    phase = f"{found.phase}{progress}" if found.phase and found.state == "starting" else None
    since = (
        datetime.fromtimestamp(found.since, UTC).astimezone().isoformat(timespec="seconds")
        if found.since
        else ""
    )
    pid = found.launcher_pid or found.guard_pid
    note = found.reason or phase or ""
    profile, url = found.profile or "", found.base_url or ""
    rows: list[tuple[str, ...]] = [("engine", str(found.state), profile, str(pid or ""), url, since, note)]
    if found.sidecar is not None:
        state = "running" if found.sidecar else "dead"
        note = "" if found.sidecar else "see draftgate logs --sidecar"
        sidecar_url = found.sidecar_url or ""
        rows.append(("sidecar", state, profile, str(found.sidecar_pid or ""), sidecar_url, "", note))
    return rows
