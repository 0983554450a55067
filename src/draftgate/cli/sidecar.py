"""``draftgate sidecar``: an engine's metrics in draftgate's words, and whether it can generate."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from draftgate.cli.load import load
from draftgate.cli.profiles import Name, Sets


def sidecar(
    name: Name,
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

    loaded = load(name, sets or [])
    config = configure(
        loaded.profile,
        loaded.pin,
        engine_url or loaded.command.base_url,
        host=host,
        port=port,
        stall_seconds=stall_seconds,
        scrape_timeout=scrape_timeout,
    )
    serve(
        config,
        lambda url: print(
            f"sidecar of {config.profile} at {url}/metrics, engine at {config.engine_url}",
            file=sys.stderr,
            flush=True,
        ),
    )
