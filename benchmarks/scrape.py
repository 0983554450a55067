"""What a scrape costs: the sidecar's way from an engine's text to its own, against the least parsing takes.

    python -m benchmarks.scrape

The least is filtering the same lines and running prometheus_client's parser over them, nothing else. Both are
measured turn by turn in one run, as CPU time of this process; the ratio is of the medians. The last column is
a whole scrape, with asking the engine (a stand-in, in a process of its own) over HTTP.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families

from draftgate.metrics.exposition import decode
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, Rules
from draftgate.sidecar.config import SidecarConfig
from draftgate.sidecar.exposition import Scrape, exposition
from draftgate.sidecar.tracker import Tracker
from draftgate.sidecar.watch import Watch
from tests.standin.expositions import FOLDER, SGLANG_LLAMA, SGLANG_MLA, VLLM

FIXTURES = (
    (VLLM, Dialect.VLLM, "0.32.0"),
    (SGLANG_LLAMA, Dialect.SGLANG, "0.5.16"),
    (SGLANG_MLA, Dialect.SGLANG, "0.5.16"),
)
ROUNDS = 400
MAX_RATIO = 1.3
MAX_MILLISECONDS = 10.0


def least(body: bytes, rules: Rules) -> object:
    """Filter by name, parse, no more."""
    lines = [line for line in body.decode().split("\n") if line.partition("{")[0] in rules.wanted]
    return list(text_string_to_metric_families("\n".join(lines)))


def whole(body: bytes, config: SidecarConfig, tracker: Tracker) -> object:
    """What the sidecar does between an answer and its own."""
    observation = tracker.observe(read(decode(body), config.rules), time.monotonic())
    return exposition(config, Scrape(observation, 0.001)).encode()


def scraped(watch: Watch) -> object:
    """The same with asking the engine."""
    scrape = watch.scrape(10.0)
    if scrape.fault is not None:
        raise RuntimeError(scrape.fault.meaning)
    return exposition(watch.config, scrape).encode()


def milliseconds(work: Callable[..., object], *arguments: object) -> float:
    """CPU time of this process, all threads."""
    start = time.process_time_ns()
    work(*arguments)
    return (time.process_time_ns() - start) / 1e6


@contextmanager
def standin(name: str) -> Iterator[str]:
    words = (sys.executable, "-m", "tests.standin.endpoint", "--exposition", name)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield next(iter(process.stdout or ())).strip()
        finally:
            process.terminate()


def measure(name: str, dialect: Dialect, version: str) -> bool:
    """Print one line; True if it is within the limits."""
    body = (FOLDER / f"{name}.prom").read_bytes()
    with standin(name) as url:
        config = SidecarConfig(name, dialect, version, "model", "drafter", 3, 1, url)
        tracker, watch = Tracker(config.stall_seconds), Watch(config)
        rounds = [
            (
                milliseconds(whole, body, config, tracker),
                milliseconds(least, body, config.rules),
                milliseconds(scraped, watch),
            )
            for _ in range(ROUNDS)
        ]
    ours, theirs, over_http = (statistics.median(times[i] for times in rounds) for i in range(3))
    print(f"{name:28} {ours:10.2f} {theirs:9.2f} {ours / theirs:6.2f} {over_http:13.2f}")
    return ours / theirs <= MAX_RATIO and over_http <= MAX_MILLISECONDS


def main() -> int:
    """Exit code 0 if every fixture is within both limits."""
    print(f"{'CPU time per scrape':28} {'sidecar ms':>10} {'least ms':>9} {'ratio':>6} {'with HTTP ms':>13}")
    measured = [measure(*fixture) for fixture in FIXTURES]
    fine = all(measured)
    print(f"limits: ratio {MAX_RATIO}, {MAX_MILLISECONDS} ms with HTTP: {'met' if fine else 'NOT met'}")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
