"""Is the engine ready? It generated a token not long ago, or it is busy and getting on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from draftgate.client.control import generate_one_token
from draftgate.metrics.faults import UnusableAnswer
from draftgate.metrics.state import EngineState
from draftgate.sidecar.watch import Watch


@dataclass(frozen=True)
class Verdict:
    """Ready or not, and why in one line."""

    ready: bool
    reason: str


class Readiness:
    """Answers /readyz; at most one generation of its own is under way."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._config = watch.config
        self._generating = threading.Lock()
        self._generated_at: float | None = None
        self._last: tuple[float, Verdict] | None = None

    def check(self) -> Verdict:
        """The verdict now.

        An engine at work is not asked to generate: its queue may be longer than any probe's patience, and a
        busy engine is not a dead one. An idle one is asked, at most once per ``ready_seconds``.
        """
        observation = self._watch.scrape(self._config.probe_timeout).observation
        state = observation.state
        if state in {EngineState.UNREACHABLE, EngineState.STALLED}:
            return Verdict(False, f"the engine {state.meaning}")
        if observation.progressing:
            return Verdict(True, f"the engine {state.meaning}")
        return self._recent() or self._shared_generation(time.monotonic())

    def generate(self) -> Verdict:
        """Have a token generated now, whatever was seen before."""
        config = self._config
        start = time.monotonic()
        try:
            key = config.api_key()
            generate_one_token(config.engine_url, config.model, seconds=config.probe_timeout, key=key)
        except UnusableAnswer as error:
            return Verdict(False, f"no token was generated: {error.what}")
        self._generated_at = time.monotonic()
        return Verdict(True, f"a token was generated in {self._generated_at - start:.3f} s")

    def _recent(self) -> Verdict | None:
        if self._generated_at is None:
            return None
        age = time.monotonic() - self._generated_at
        if age >= self._config.ready_seconds:
            return None
        return Verdict(True, f"a token was generated {age:.0f} s ago")

    def _shared_generation(self, asked_at: float) -> Verdict:
        """Generate, or take the verdict of a generation that ended while this one waited for its turn."""
        with self._generating:
            if self._last is not None and self._last[0] >= asked_at:
                return self._last[1]
            verdict = self.generate()
            if not verdict.ready:
                observation = self._watch.scrape(self._config.probe_timeout).observation
                if observation.progressing:
                    verdict = Verdict(True, f"the engine {observation.state.meaning}")
            self._last = (time.monotonic(), verdict)
            return verdict
