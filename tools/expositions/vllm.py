"""vLLM 0.19.1's PrometheusStatLogger through a short life: idle, two requests speculating, both finished."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tools.expositions.source import EPOCH, refuse_if_metrics, take

MODEL, K = "kimi", 3
# Accepted draft tokens of each verify step, and whether the request ends with it.
STEPS = ((3, 1), (0, 3), (2, 2), (1, 0), (3, 3))
PROMPT, CACHED = 48, 16
STEP_SECONDS = 0.03


class Life:
    """One engine, step by step."""

    def __init__(self) -> None:
        from vllm.config.cache import CacheConfig
        from vllm.v1.metrics.loggers import PrometheusStatLogger

        cache = CacheConfig(block_size=16)
        cache.num_gpu_blocks = 4096
        observability = SimpleNamespace(
            show_hidden_metrics=False, kv_cache_metrics=False, enable_mfu_metrics=False
        )
        config: Any = SimpleNamespace(
            observability_config=observability,
            model_config=SimpleNamespace(served_model_name=MODEL, max_model_len=32768),
            speculative_config=SimpleNamespace(num_speculative_tokens=K),
            cache_config=cache,
            kv_transfer_config=None,
            lora_config=None,
        )
        self._logger = PrometheusStatLogger(config, [0])
        self._logger.log_engine_initialized()
        self._now = 100.0
        self._requests: list[Any] = []

    def text(self) -> str:
        from prometheus_client import REGISTRY, generate_latest

        # Without the process' own series, which are this machine's.
        lines = generate_latest(REGISTRY).decode().splitlines(keepends=True)
        return "".join(line for line in lines if "vllm:" in line)

    def admit(self, count: int) -> None:
        """``count`` requests arrive and get their first token; the prefix cache knows their beginning."""
        from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput
        from vllm.v1.metrics.stats import PrefixCacheStats, RequestStateStats

        looked_up = PrefixCacheStats()
        outputs = []
        for number in range(count):
            looked_up.record(PROMPT, CACHED, preempted=False)
            self._requests.append(RequestStateStats(arrival_time=EPOCH - 0.2))
            events = [
                EngineCoreEvent.new_event(EngineCoreEventType.QUEUED, self._now),
                EngineCoreEvent.new_event(EngineCoreEventType.SCHEDULED, self._now + 0.01),
            ]
            outputs.append(EngineCoreOutput(str(number), [7], events=events, num_cached_tokens=CACHED))
        self._now += 0.15
        self._record(outputs, prefilling=True, prefix_cache_stats=looked_up)

    def step(self, accepted: tuple[int, ...], *, last: bool = False) -> None:
        """One verify step of each running request."""
        from vllm.v1.engine import EngineCoreOutput
        from vllm.v1.spec_decode.metrics import SpecDecodingStats

        stats = SpecDecodingStats.new(K)
        for count in accepted:
            stats.observe_draft(num_draft_tokens=K, num_accepted_tokens=count)
        self._now += STEP_SECONDS
        outputs = [EngineCoreOutput(str(number), [7] * (count + 1)) for number, count in enumerate(accepted)]
        self._record(outputs, last=last, spec_decoding_stats=stats)

    def _record(
        self, outputs: list[Any], *, prefilling: bool = False, last: bool = False, **scheduled: Any
    ) -> None:
        from vllm.v1.engine import FinishReason
        from vllm.v1.metrics.stats import IterationStats, LoRARequestStates, SchedulerStats

        iteration, lora = IterationStats(), LoRARequestStates()
        for output, request in zip(outputs, self._requests, strict=True):
            iteration.update_from_output(output, self._now, prefilling, PROMPT, request, lora, None)
            if last:
                iteration.update_from_finished_request(FinishReason.LENGTH, PROMPT, 64, request, CACHED)
        running = 0 if last else len(outputs)
        usage = 0.0 if last else 0.0125
        self._logger.record(
            SchedulerStats(num_running_reqs=running, kv_cache_usage=usage, **scheduled), iteration
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="an unpacked wheel of vLLM")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    failed = take("vllm", options.source)
    platforms = importlib.import_module("vllm.platforms")
    vars(platforms)["_current_platform"] = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
    life = Life()
    texts = {"idle": life.text()}
    life.admit(2)
    for step in STEPS[:-1]:
        life.step(step)
    texts["busy"] = life.text()
    life.step(STEPS[-1], last=True)
    texts["done"] = life.text()
    for name, text in texts.items():
        (options.out / f"vllm-0.19.1-eagle3-{name}.prom").write_text(text, encoding="utf-8")
    refuse_if_metrics(failed)


if __name__ == "__main__":
    main()
