"""``/probe?debug=true``: try everything once and show the steps, the metrics and the configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from draftgate.client.control import models
from draftgate.metrics.faults import UnusableAnswer
from draftgate.sidecar.config import SidecarConfig
from draftgate.sidecar.exposition import exposition
from draftgate.sidecar.readiness import Readiness, Verdict
from draftgate.sidecar.watch import Watch

# Where a user keeps files is not for everybody.
_HIDDEN = frozenset({"api_key_file", "request_files"})
_Outcome = TypeVar("_Outcome")


def report(watch: Watch, readiness: Readiness) -> tuple[Verdict, str]:
    """A generation's verdict, and the whole probe as text.

    The text names no key (nor its file), no prompt, and nothing that the engine wrote.
    """
    config = watch.config
    scraped, scrape_seconds = _timed(lambda: watch.scrape(config.scrape_timeout))
    listed, models_seconds = _timed(lambda: _listed(config))
    verdict, generation_seconds = _timed(readiness.generate)
    state = scraped.observation.state
    outcome = scraped.fault.meaning if scraped.fault else f"the engine {state.meaning}"
    shown = (field.name for field in fields(config) if field.name not in _HIDDEN)
    lines = [
        f"probe of profile {config.profile}: {'ready' if verdict.ready else 'not ready'}",
        "",
        "steps",
        f"  {scrape_seconds:8.3f} s  metrics: {outcome}",
        f"  {models_seconds:8.3f} s  models: {listed}",
        f"  {generation_seconds:8.3f} s  generation: {verdict.reason}",
        "",
        "configuration",
        *(f"  {name} = {getattr(config, name)}" for name in shown),
        f"  api_key = {'none' if config.api_key_file is None else 'from a file'}",
        "",
        "metrics",
        exposition(config, scraped),
    ]
    return verdict, "\n".join(lines)


def _listed(config: SidecarConfig) -> str:
    try:
        served = models(config.engine_url, seconds=config.probe_timeout, key=config.api_key())
    except UnusableAnswer as error:
        return error.what
    return "the served name is listed" if config.model in served else "the served name is not listed"


def _timed(step: Callable[[], _Outcome]) -> tuple[_Outcome, float]:
    start = time.monotonic()
    outcome = step()
    return outcome, time.monotonic() - start
