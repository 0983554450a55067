"""One measurement: warm-up, counters, load, counters, figures, findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from draftgate.bench.counters import EngineWindow, Scrape, edge, window
from draftgate.bench.endpoint import Endpoint, dialect_of, scraper
from draftgate.bench.guard import Finding, findings
from draftgate.bench.load import Gauge, Load, closed_loop
from draftgate.bench.measure import Figures, measure
from draftgate.bench.workload import Workload
from draftgate.client.completion import ChatRequest, CompletionRecord
from draftgate.client.stream import StreamClient
from draftgate.errors import EngineUnreachable
from draftgate.metrics.requests import total
from draftgate.metrics.sample import EngineSample


@dataclass(frozen=True)
class Result:
    """A measurement with all that is needed to judge it.

    Attributes:
        engine: the engine's counters over the window; None where it has none.
    """

    workload: Workload
    load: Load
    figures: Figures
    engine: EngineWindow | None
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The findings that forbid the figures."""
        return tuple(finding for finding in self.findings if finding.refuses)


def run(
    endpoint: Endpoint,
    workload: Workload,
    *,
    on_record: Callable[[CompletionRecord], None] = lambda record: None,
    at_rest: Callable[[EngineSample], None] = lambda sample: None,
) -> Result:
    """Measure ``workload`` on a running engine.

    Args:
        on_record: called after each request of the window.
        at_rest: called at both edges of the window with what the engine says there, when its counters stand
            still.

    Raises:
        EngineUnreachable: its warm-up fails, or its metrics vanish.
    """
    return asyncio.run(_run(endpoint, workload, on_record, at_rest))


async def _run(
    endpoint: Endpoint,
    workload: Workload,
    on_record: Callable[[CompletionRecord], None],
    at_rest: Callable[[EngineSample], None],
) -> Result:
    asyncio.get_running_loop().set_exception_handler(_tell_but_ctrl_c)
    # One connection more than requests in flight, for the samples.
    connections = workload.concurrency + 1
    async with StreamClient(endpoint.base_url, api_key=endpoint.api_key, connections=connections) as client:
        dialect = await dialect_of(client)
        await _warm_up(client, workload, workload.warmup_requests(endpoint.model, dialect))
        asked = workload.requests(endpoint.model, dialect)
        scrape = await scraper(client, dialect, endpoint.engine_version)
        engine = None
        if scrape is None:
            load = await closed_loop(client, asked, workload.concurrency, on_record=on_record)
        else:
            before = await edge(scrape)
            at_rest(before.sample)
            load = await closed_loop(
                client, asked, workload.concurrency, running=_running(scrape), on_record=on_record
            )
            after = await edge(scrape)
            engine = _with_requests_own(window(before, after), load)
            at_rest(after.sample)
    figures = measure(load)
    found = findings(workload, load, figures, engine, speculates=endpoint.speculates)
    return Result(workload, load, figures, engine, found)


def _tell_but_ctrl_c(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ctrl-C ends whichever task ran just then; asyncio would tell of that as of a fault."""
    if not isinstance(context.get("exception"), KeyboardInterrupt):
        loop.default_exception_handler(context)


def _with_requests_own(engine: EngineWindow, load: Load) -> EngineWindow:
    """Where the engine has no counters of acceptance, the sum of what it said at each request's end."""
    told = [record.speculation for record in load.records if record.speculation is not None]
    return replace(engine, speculation=total(told)) if told and engine.speculation is None else engine


async def _warm_up(client: StreamClient, workload: Workload, asked: Iterator[ChatRequest]) -> None:
    load = await closed_loop(client, asked, workload.concurrency)
    for record in load.records:
        if record.error:
            raise EngineUnreachable(
                "the engine failed a warm-up request", where=client.base_url, why=record.error
            )


def _running(scrape: Scrape) -> Gauge:
    async def running() -> float | None:
        with suppress(EngineUnreachable):  # one sample less
            return (await scrape()).running
        return None

    return running
