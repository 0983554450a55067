"""``draftgate sidecar``: an engine's metrics in draftgate's words, and whether it can generate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.load import load
from draftgate.cli.profiles import Sets
from draftgate.errors import DraftgateError

if TYPE_CHECKING:
    from draftgate.sidecar.config import SidecarConfig

# Of a profile's defaults, for a sidecar that watches any.
_HOST, _PORT = "127.0.0.1", 9310


def sidecar(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[PROFILE]", help="A profile; with none, whichever holds the GPU lock."),
    ] = None,
    sets: Sets = None,
    engine_url: Annotated[
        str | None, typer.Option(help="Where the engine answers, if not where the profile says.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on [default: sidecar.host].")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on, 0 for a free one [default: sidecar.port]."),
    ] = None,
    stall_seconds: Annotated[
        float, typer.Option(min=1, help="Without progress, requests in hand, from then on: stalled.")
    ] = 60.0,
    scrape_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for the engine's answer, whatever Prometheus allows.")
    ] = 10.0,
) -> None:
    """Export the engine's metrics for Prometheus, until SIGTERM or Ctrl-C."""
    from draftgate.sidecar.config import configure
    from draftgate.sidecar.server import serve

    def config_of(profile: str) -> SidecarConfig:
        loaded = load(profile, sets or [])
        return configure(
            loaded.profile,
            loaded.pin,
            engine_url or loaded.command.base_url,
            stall_seconds=stall_seconds,
            scrape_timeout=scrape_timeout,
        )

    if name is None:
        watched, whose = _holders(config_of), "of whichever profile runs"
    else:
        config, where = config_of(name), load(name, sets or []).profile.sidecar
        host, port = host or where.host, where.port if port is None else port
        watched, whose = (lambda: config), f"of {config.profile}"
    serve(
        host or _HOST,
        _PORT if port is None else port,
        watched,
        lambda url: print(f"sidecar {whose} at {url}/metrics", file=sys.stderr, flush=True),
    )


def _holders(config_of: Callable[[str], SidecarConfig]) -> Callable[[], SidecarConfig | None]:
    """The profile that holds the GPU lock, read anew when another one does, or it does so again."""
    from draftgate.host.lock import current_holder
    from draftgate.settings import settings

    seen: dict[float, SidecarConfig | None] = {}

    def watched() -> SidecarConfig | None:
        holder = current_holder(settings().lock_dir)
        if holder is None:
            return None
        if holder.acquired_at not in seen:
            seen.clear()
            try:
                seen[holder.acquired_at] = config_of(holder.profile)
            except DraftgateError as error:
                print("\n".join(error.lines()), file=sys.stderr, flush=True)
                seen[holder.acquired_at] = None
        return seen.get(holder.acquired_at)

    return watched
