"""SGLang 0.5.10.post1's metrics through a short life: idle, speculating, finished, idle for a while."""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tools.expositions.source import refuse_if_metrics, take

MODEL, K = "kimi", 3
STEPS = ((3, 1), (0, 3), (2, 2), (1, 0), (3, 3))
PROMPT, CACHED = 48, 16
# Batches from one report of the window gauges to the next (--decode-log-interval).
INTERVAL = 2
STEP_SECONDS = 0.03


def scheduler() -> Any:
    """SGLang's own mixins on as much of a scheduler as it looks at."""
    # First, since the mixin and it import each other.
    importlib.import_module("sglang.srt.managers.scheduler")
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers.scheduler_runtime_checker_mixin import SchedulerRuntimeCheckerMixin
    from sglang.srt.observability.scheduler_metrics_mixin import SchedulerMetricsMixin
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    class Scheduler(SchedulerMetricsMixin, SchedulerRuntimeCheckerMixin):
        # There is no memory to check.
        def _check_radix_cache_memory(self) -> tuple[bool, str]:
            return False, ""

        def _check_req_pool(self) -> None:
            return None

        def _get_token_info(self) -> tuple[int, float, int, int]:
            used = len(self.running_batch.reqs) * (PROMPT + 8)
            return used, used / self.max_total_num_tokens, self.max_total_num_tokens - used, 0

    made: Any = Scheduler()
    made.server_args = SimpleNamespace(
        enable_metrics=True,
        enable_metrics_for_all_schedulers=False,
        disaggregation_mode="null",
        served_model_name=MODEL,
        extra_metric_labels=None,
        enable_mfu_metrics=False,
        language_only=False,
        decode_log_interval=INTERVAL,
        speculative_num_steps=K,
        speculative_num_draft_tokens=K + 1,
        prefill_delayer_max_delay_passes=30,
        prefill_delayer_forward_passes_buckets=None,
        prefill_delayer_wait_seconds_buckets=None,
    )
    made.attn_tp_rank = made.moe_ep_rank = made.forward_ct = 0
    made.enable_priority_scheduling = made.enable_lora = made.enable_hierarchical_cache = False
    made.enable_kv_cache_events = made.is_hybrid_swa = made.is_hybrid_ssm = False
    made.disaggregation_mode = DisaggregationMode.NULL
    made.spec_algorithm = SpeculativeAlgorithm.EAGLE3
    made.device, made.max_total_num_tokens = "cuda", 65536
    made.waiting_queue, made.grammar_manager = [], ()
    made.num_retracted_reqs = made.num_paused_reqs = 0
    made.running_batch = batch(0)
    made.init_metrics(tp_rank=0, pp_rank=0, dp_rank=None)
    return made


def batch(requests: int) -> Any:
    import torch

    return SimpleNamespace(
        reqs=[SimpleNamespace(routing_key=None, priority=None) for _ in range(requests)],
        batch_size=lambda: requests,
        seq_lens_cpu=torch.full((requests,), PROMPT),
        dp_cooperation_info=None,
    )


class Life:
    def __init__(self) -> None:
        from sglang.srt.observability.metrics_collector import TokenizerMetricsCollector

        self._tic = 100.0
        vars(time)["perf_counter"] = lambda: self._tic
        self._labels = {"model_name": MODEL}
        self._scheduler = scheduler()
        self._tokenizer = TokenizerMetricsCollector(labels=self._labels)
        self._generated: list[int] = []
        self.rest()

    def text(self) -> str:
        from prometheus_client import CollectorRegistry, generate_latest, multiprocess

        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        return generate_latest(registry).decode()

    def rest(self) -> None:
        """Half a minute without requests: then an idle scheduler reports too."""
        self._tic += 31
        self._scheduler.running_batch = batch(0)
        self._scheduler.check_memory()

    def admit(self, count: int) -> None:
        from sglang.srt.observability.metrics_collector import QueueCount
        from sglang.srt.observability.scheduler_metrics_mixin import PrefillStats

        self._tic += 0.15
        self._scheduler.running_batch = batch(count)
        computed, hit = count * (PROMPT - CACHED), count * CACHED
        self._scheduler.report_prefill_stats(
            PrefillStats(computed, hit, 0.7, QueueCount(total=0), count), can_run_cuda_graph=False
        )
        for _ in range(count):
            self._generated.append(1)
            self._tokenizer.observe_time_to_first_token(self._labels, 0.2)

    def step(self, accepted: tuple[int, ...]) -> None:
        """As scheduler_output_processor_mixin does after a verification."""
        made = self._scheduler
        self._tic += STEP_SECONDS
        made.num_generated_tokens += len(accepted)
        made.update_spec_metrics(len(accepted), sum(accepted))
        made.forward_ct_decode += 1
        made.report_decode_stats(True, made.running_batch, num_accepted_tokens=sum(accepted))
        for number, count in enumerate(accepted):
            self._generated[number] += count + 1
            self._tokenizer.observe_inter_token_latency(self._labels, STEP_SECONDS, count + 1)

    def finish(self) -> None:
        """The requests end; of this the scheduler's gauges know nothing before `rest`."""
        for tokens in self._generated:
            self._tokenizer.observe_one_finished_request(
                self._labels, PROMPT, tokens, CACHED, 0.2 + len(STEPS) * STEP_SECONDS, False, 0, None
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="an unpacked wheel of SGLang")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Before anything imports prometheus_client, as SGLang's launcher does it.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        failed = take("sglang", options.source)
        life = Life()
        texts = {"idle": life.text()}
        life.admit(2)
        for step in STEPS[:-1]:
            life.step(step)
        texts["busy"] = life.text()
        life.step(STEPS[-1])
        life.finish()
        texts["done"] = life.text()
        life.rest()
        texts["rest"] = life.text()
    for name, text in texts.items():
        (options.out / f"sglang-0.5.10.post1-eagle3-{name}.prom").write_text(text, encoding="utf-8")
    refuse_if_metrics(failed)


if __name__ == "__main__":
    main()
