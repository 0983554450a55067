"""What only several readings together tell: progress, tokens per second, the age of window means."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from draftgate.metrics.sample import EngineSample
from draftgate.metrics.state import EngineState, Progress, advance, state_of

# A rate needs a stretch behind it, whoever else reads in between.
_RATE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One reading with what the readings before it add.

    Attributes:
        progressing: requests are in hand and something was seen to move within the stall limit.
        tokens_per_second: since the last reading at least a second ago; None at first.
        window_age: seconds since output tokens were last seen to move; None at first or without a window.
    """

    state: EngineState
    sample: EngineSample | None = None
    progressing: bool = False
    tokens_per_second: float | None = None
    window_age: float | None = None


class Tracker:
    """Remembers as little of earlier readings as the next one needs; safe for threads."""

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._points: deque[tuple[float, float]] = deque(maxlen=8)
        self._window: tuple[float, float] | None = None

    def observe(self, sample: EngineSample | None, now: float) -> Observation:
        """Take in what an engine answered at monotonic time ``now``, in seconds."""
        if sample is None:
            return Observation(EngineState.BLIND)
        with self._lock:
            self._progress = advance(self._progress, sample, now)
            state = state_of(sample, self._progress, now, self._stall_seconds)
            return Observation(
                state=state,
                sample=sample,
                progressing=state is EngineState.BUSY and self._progress.moved,
                tokens_per_second=self._rate(sample, now),
                window_age=self._age(sample, now),
            )

    def _rate(self, sample: EngineSample, now: float) -> float | None:
        tokens = sample.live_tokens
        if tokens is None:
            return sample.throughput
        if self._points and tokens < self._points[-1][1]:
            self._points.clear()  # the engine restarted
        before = next((p for p in reversed(self._points) if now - p[0] >= _RATE_SECONDS), None)
        # Points closer together would push out the one that the next reading needs.
        if not self._points or now - self._points[-1][0] >= _RATE_SECONDS / 4:
            self._points.append((now, tokens))
        return None if before is None else (tokens - before[1]) / (now - before[0])

    def _age(self, sample: EngineSample, now: float) -> float | None:
        tokens = sample.live_tokens
        if sample.window is None or tokens is None:
            return None
        if self._window is None:
            self._window = (tokens, now)
            return None
        if self._window[0] != tokens:
            self._window = (tokens, now)
        return now - self._window[1]
