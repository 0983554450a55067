"""A result for people (rows of a table) and for machines (the receipt)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from draftgate import receipt
from draftgate.bench.counters import EngineWindow
from draftgate.bench.measure import Spread, e2e, tpot, ttft
from draftgate.bench.run import Result
from draftgate.client.completion import CompletionRecord
from draftgate.metrics.acceptance import acceptance_length, acceptance_rate, per_position_rates

UNKNOWN = "unknown"


def rows(result: Result) -> list[tuple[str, str]]:
    """Name and value of every figure, for a table."""
    figures, engine = result.figures, result.engine
    return [
        ("requests", f"{figures.completed}, {result.workload.concurrency} at a time"),
        ("tokens", f"{figures.prompt_tokens} in, {figures.completion_tokens} out"),
        ("window", f"{figures.seconds:.2f} s"),
        ("throughput", _number(figures.tokens_per_second, "{:.1f} tok/s")),
        ("TTFT", _spread(figures.ttft)),
        ("TPOT", _spread(figures.tpot)),
        ("end to end", _spread(figures.e2e)),
        *acceptance_rows(engine),
        ("distinct bigrams", _number(figures.distinct_bigram_ratio, "{:.3f}")),
    ]


def acceptance_rows(engine: EngineWindow | None) -> list[tuple[str, str]]:
    """Acceptance by the engine's counters; no row for an engine that does not speculate."""
    if engine is None or engine.speculation is None:
        return []
    counters = engine.speculation
    positions = per_position_rates(counters)
    return [
        ("acceptance rate", _number(acceptance_rate(counters), "{:.3f}")),
        ("acceptance length", _number(acceptance_length(counters), "{:.2f} tokens per verify step")),
        ("per position", " / ".join(f"{rate:.3f}" for rate in positions) if positions else UNKNOWN),
    ]


def receipt_of(
    result: Result,
    *,
    kind: str,
    engine: Mapping[str, object],
    models: Mapping[str, receipt.ModelDigest],
) -> receipt.Receipt:
    """The receipt of one measurement; figures that the guard forbids are not in it, the requests are."""
    figures = None if result.refused else {**asdict(result.figures), **_counted(result.engine)}
    return receipt.Receipt(
        kind=kind,
        created=receipt.now(),
        draftgate=receipt.draftgate_version(),
        machine=receipt.machine(),
        engine=engine,
        models=models,
        workload=result.workload.description(),
        figures=figures,
        findings=tuple(finding.as_json() for finding in result.findings),
        requests=tuple(_request(record, result.load.started) for record in result.load.records),
    )


def _counted(engine: EngineWindow | None) -> dict[str, object]:
    counters = engine.speculation if engine else None
    return {
        "engine_counters": asdict(engine) if engine else None,
        "acceptance_rate": acceptance_rate(counters) if counters else None,
        "acceptance_length": acceptance_length(counters) if counters else None,
        "per_position": per_position_rates(counters) if counters else None,
    }


def _request(record: CompletionRecord, started: float) -> dict[str, object]:
    """One request without its text."""
    return {
        "prompt_id": record.prompt_id,
        "sent": record.sent - started,
        "ttft": ttft(record),
        "tpot": tpot(record),
        "e2e": e2e(record),
        "chunks": record.chunks,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "finish_reason": record.finish_reason,
        "error": record.error,
    }


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    named = [("mean", spread.mean), ("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99)]
    return ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in named if value is not None)
