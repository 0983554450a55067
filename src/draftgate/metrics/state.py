"""Is the engine idle, busy or stalled? From readings and the time between them. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from draftgate.metrics.sample import EngineSample


class EngineState(enum.StrEnum):
    """What an engine is doing, as far as its metrics tell."""

    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    BLIND = "blind"
    IDLE = "idle"
    BUSY = "busy"
    STALLED = "stalled"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    EngineState.UNREACHABLE: "does not answer",
    EngineState.UNREADABLE: "answers what cannot be used",
    EngineState.BLIND: "answers, but says nothing about requests (statistics off, or none served yet)",
    EngineState.IDLE: "holds no request",
    EngineState.BUSY: "holds requests and gets on with them",
    EngineState.STALLED: "holds requests, and for the stall limit nothing has moved",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How long an engine has stood still with requests in hand.

    Attributes:
        marks: whatever changes when the engine gets on; compared, never counted.
        quiet_since: monotonic time, in seconds, of the first reading with these marks and requests in hand;
            None without requests.
        moved: whether marks were seen to change since the last reading without requests.
    """

    marks: tuple[float | None, ...]
    quiet_since: float | None
    moved: bool = False


def advance(before: Progress | None, sample: EngineSample, now: float) -> Progress:
    """The progress after one more reading.

    Output tokens, prompt tokens, tokens in prefill and KV usage each count as getting on: of a prefill in
    parts vLLM reports nothing until it ends, except that the KV cache fills. An engine without requests has
    nothing to get on with, so its quiet time starts with the first reading that has some.
    """
    marks = (
        sample.live_tokens,
        sample.generated_tokens,
        sample.prompt_tokens,
        sample.prefill_tokens,
        sample.kv_usage,
    )
    if not sample.requests:
        return Progress(marks, None)
    if before is not None and marks != before.marks:
        return Progress(marks, now, moved=True)
    if before is None or before.quiet_since is None:
        return Progress(marks, now)
    return before


def state_of(sample: EngineSample | None, progress: Progress | None, now: float, limit: float) -> EngineState:
    """The state of an engine that answered.

    Args:
        sample: the reading, None for an engine without series of its own.
        progress: after this reading; None only without a sample.
        limit: seconds without any progress, requests in hand, from which on it counts as stalled.
    """
    if sample is None or progress is None or sample.running is None:
        return EngineState.BLIND
    if progress.quiet_since is None:
        return EngineState.IDLE
    return EngineState.STALLED if now - progress.quiet_since >= limit else EngineState.BUSY
