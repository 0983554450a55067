"""The engine, watched: ask it, understand it, remember what the next reading needs."""

from __future__ import annotations

import time
from dataclasses import replace

from draftgate.client.exchange import exchange
from draftgate.metrics.exposition import decode
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.reading import read
from draftgate.metrics.sample import EngineSample
from draftgate.metrics.state import EngineState
from draftgate.sidecar.config import MAX_ANSWER, SidecarConfig
from draftgate.sidecar.exposition import Scrape
from draftgate.sidecar.requests import RequestReader
from draftgate.sidecar.tracker import Observation, Tracker

_UNREACHABLE = frozenset({Fault.REFUSED, Fault.TIMEOUT, Fault.CONNECTION})


class Watch:
    """One engine for as long as the sidecar lives; safe for threads."""

    def __init__(self, config: SidecarConfig) -> None:
        self.config = config
        self._tracker = Tracker(config.stall_seconds)
        self._requests = RequestReader(config.request_files) if config.request_files else None

    def scrape(self, seconds: float) -> Scrape:
        """Ask the engine now; never raises, since an engine that fails is what a sidecar reports.

        Args:
            seconds: limit for the engine's answer.
        """
        start = time.monotonic()
        try:
            sample = self._ask(seconds)
        except UnusableAnswer as error:
            unreachable = error.fault in _UNREACHABLE
            state = EngineState.UNREACHABLE if unreachable else EngineState.UNREADABLE
            return Scrape(Observation(state), time.monotonic() - start, error.fault)
        now = time.monotonic()
        return Scrape(self._tracker.observe(sample, now), now - start)

    def _ask(self, seconds: float) -> EngineSample | None:
        # Without the key: both engines leave /metrics open, and a key that is not sent is not lost.
        url = f"{self.config.engine_url}/metrics"
        answer = exchange(url, seconds=seconds, max_bytes=MAX_ANSWER)
        if answer.status != 200:
            raise UnusableAnswer(Fault.HTTP_STATUS, answer.status)
        sample = read(decode(answer.body), self.config.rules)
        if sample is None or self._requests is None:
            return sample
        return replace(sample, speculation=self._requests.read())
