"""The guard: reasons not to print a number, each from a mistake that published measurements made."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from draftgate.bench.counters import EngineWindow
from draftgate.bench.load import Load
from draftgate.bench.measure import LOOP, Figures
from draftgate.bench.workload import Workload

# One Python thread reads all streams: near a whole core it times itself, not the engine.
CLIENT_CPU = 0.8
# A chat template's few tokens are shared by all prompts; whole prompts are not.
PREFIX_HITS = 0.2
# The gauge is read between two steps now and then, so a full engine shows a little less.
CONCURRENCY = 0.8
SAMPLES = 5
# Share of tokens that others may have generated: a readiness probe asks for one now and then.
OTHERS = 0.005


class Code(enum.StrEnum):
    """What was found; the first group refuses the figures, the second only goes with them."""

    NO_REQUEST = "no-request"
    FAILED = "failed-requests"
    LOOPS = "degenerate-loops"
    PREFIX_CACHE = "prefix-cache-hits"
    RESET = "counters-reset"
    UNSETTLED = "counters-unsettled"
    PREEMPTED = "preemptions"
    NO_DRAFTS = "no-drafts"
    UNASKED_DRAFTS = "unasked-drafts"
    OTHER_TRAFFIC = "other-traffic"
    CONCURRENCY = "concurrency-not-reached"
    CLIENT_BUSY = "client-busy"

    SOME_LOOPS = "some-loops"
    UNEQUAL_LENGTHS = "unequal-lengths"
    COLD = "no-warm-up"
    NO_COUNTERS = "no-engine-counters"
    NO_TOKEN_IDS = "no-token-ids"  # noqa: S105 - not a secret


WARNINGS = frozenset({Code.SOME_LOOPS, Code.UNEQUAL_LENGTHS, Code.COLD, Code.NO_COUNTERS, Code.NO_TOKEN_IDS})


@dataclass(frozen=True)
class Finding:
    code: Code
    text: str

    @property
    def refuses(self) -> bool:
        return self.code not in WARNINGS

    def as_json(self) -> dict[str, object]:
        return {"code": str(self.code), "refuses": self.refuses, "text": self.text}


def findings(
    workload: Workload, load: Load, figures: Figures, engine: EngineWindow | None, *, speculates: bool | None
) -> tuple[Finding, ...]:
    """All findings on one load.

    Args:
        engine: the engine's counters over the window; None where it has none.
        speculates: whether the engine was configured to; None where nobody knows.
    """
    return (*_client(workload, load, figures), *_engine(workload, figures, engine, speculates))


def _client(workload: Workload, load: Load, figures: Figures) -> Iterator[Finding]:
    if not figures.completed and not figures.failed:
        yield Finding(Code.NO_REQUEST, "no request was sent")
    if figures.failed:
        first = next(record for record in load.records if record.error)
        yield Finding(
            Code.FAILED,
            f"{figures.failed} of {len(load.records)} requests failed, "
            f"the first ({first.prompt_id}) with: {first.error}",
        )
    if figures.looping:
        many = figures.distinct_bigram_ratio is not None and figures.distinct_bigram_ratio < LOOP
        yield Finding(
            Code.LOOPS if many else Code.SOME_LOOPS,
            f"{figures.looping} of {figures.completed} answers run in loops (distinct-bigram ratio below "
            f"{LOOP}), which flatters a drafter",
        )
    if load.client_cpu > CLIENT_CPU:
        yield Finding(
            Code.CLIENT_BUSY,
            f"the client used {load.client_cpu:.0%} of a core: it measured itself; ask for less at a time",
        )
    if workload.concurrency > 1 and len(load.running) >= SAMPLES:
        seen = statistics.fmean(load.running)
        if seen < CONCURRENCY * workload.concurrency:
            yield Finding(
                Code.CONCURRENCY,
                f"the engine ran {seen:.1f} requests at a time where {workload.concurrency} were asked for "
                "(max_running_requests, or too small a KV cache)",
            )
    if figures.cut_short and not workload.sampling.ignore_eos:
        yield Finding(
            Code.UNEQUAL_LENGTHS,
            f"{figures.cut_short} answers ended before {workload.sampling.max_tokens} tokens; compare "
            "end-to-end times and throughput only with runs of the same lengths",
        )
    if not workload.warmup:
        yield Finding(Code.COLD, "no warm-up: the first requests pay for compilation and cold caches")
    if figures.completed and figures.distinct_bigram_ratio is None:
        yield Finding(Code.NO_TOKEN_IDS, "the engine sends no token ids: loops are not looked for")


def _engine(
    workload: Workload, figures: Figures, engine: EngineWindow | None, speculates: bool | None
) -> Iterator[Finding]:
    if engine is None:
        yield Finding(
            Code.NO_COUNTERS, "the engine publishes no counters: acceptance and cache hits are unknown"
        )
        return
    if engine.reset:
        # Differences over a restart mean nothing, so nothing more is read from them.
        yield Finding(Code.RESET, "the engine's counters went back: it restarted during the measurement")
        return
    if not engine.settled:
        yield Finding(
            Code.UNSETTLED, "the engine's counters still moved after the last answer: other traffic"
        )
    if engine.preemptions:
        yield Finding(
            Code.PREEMPTED,
            f"the engine preempted {engine.preemptions:.0f} requests and computed them again: "
            "too small a KV cache",
        )
    if (
        engine.prefix_hits
        and engine.prefix_queries
        and engine.prefix_hits > PREFIX_HITS * engine.prefix_queries
    ):
        share = engine.prefix_hits / engine.prefix_queries
        why = (
            f"{workload.repeated} prompts were repeated" if workload.repeated else "prompts were asked before"
        )
        yield Finding(Code.PREFIX_CACHE, f"{share:.0%} of prompt tokens came from the prefix cache: {why}")
    if speculates and not (engine.speculation and engine.speculation.drafts):
        yield Finding(Code.NO_DRAFTS, "speculation is configured, but the engine counted no draft")
    if speculates is False and engine.speculation is not None:
        yield Finding(Code.UNASKED_DRAFTS, "the engine speculates, which this profile does not: another runs")
    others = (engine.generated_tokens or 0) - figures.completion_tokens
    if (
        engine.generated_tokens is not None
        and not figures.failed
        and abs(others) > OTHERS * figures.completion_tokens
    ):
        yield Finding(
            Code.OTHER_TRAFFIC,
            f"the engine generated {engine.generated_tokens:.0f} tokens, these requests got "
            f"{figures.completion_tokens}: somebody else used it",
        )
