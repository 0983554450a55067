"""Serves each drafter on a real engine and records its acceptance: `python -m tools.wrongdrafters.measure`.

The answers must be those of the good drafter: verification makes the text, the drafter only its speed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from draftgate import receipt
from draftgate.bench.counters import edge
from draftgate.bench.stage import Arm, Interrupts, Stage
from draftgate.bench.workload import Workload, load_prompts
from draftgate.cli.load import load
from draftgate.client.completion import ChatRequest, Sampling
from draftgate.client.exchange import exchange
from draftgate.data import data_root
from draftgate.errors import DraftgateError, EngineUnreachable
from draftgate.host.processes import wait_until
from draftgate.metrics.acceptance import acceptance_length, acceptance_rate, per_position_rates, since
from draftgate.metrics.exposition import decode
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import EngineSample, SpeculationCounters
from draftgate.profile.model import EngineName
from draftgate.runtime import native
from tools.wrongdrafters.faults import FAULTS

GOOD = "good"
_NEW_TOKENS = 128
# What a log says of a drafter's parts, or of a failure.
_TELLING = re.compile(r"(?i)aux|embed_tokens|lm_head|d2t|hot_token|\b\w*Error: |crashed|mat1 and mat2|died")
# All arguments, the drafter's folder among them, and a limit of this machine.
_NOISE = re.compile(r"non-default args|server_args|speculative_config=|^Found ulimit")
_PREFIX = re.compile(
    r"^(\([\w-]+ pid=\d+\) )?((\w+ )?\[?[-\d]+ [:\d]+(\]| TP\d+\]| \[[\w./]+:\d+\])|\w+:)? ?"
)


def drafts_of_requests(folder: Path, skip: int, num_speculative_tokens: int) -> SpeculationCounters:
    """The sum over what SGLang wrote of each finished request, without the first ``skip``."""
    lines = [json.loads(line) for line in _request_lines(folder)[skip:]]
    steps = [0] * (num_speculative_tokens + 1)  # by accepted draft tokens
    for line in lines:
        for accepted, count in enumerate(line["spec_accept_histogram"]):
            steps[accepted] += count
    drafts = sum(line["spec_verify_ct"] for line in lines)
    per_position = tuple(float(sum(steps[i + 1 :])) for i in range(num_speculative_tokens))
    proposed = sum(line["spec_num_proposed_drafts"] for line in lines)
    return SpeculationCounters(float(drafts), float(proposed), sum(per_position), per_position)


def _request_lines(folder: Path) -> list[str]:
    return [line for file in sorted(folder.glob("*.log")) for line in file.read_text().splitlines()]


def arm(profile: str, drafter: Path | None, requests: Path, own: tuple[str, ...] = ()) -> Arm:
    """The profile with another drafter, on a free port; SGLang writes what its requests accepted."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        sets = [*own, f"server.port={probe.getsockname()[1]}"]
    if drafter is not None:
        sets.append(f"drafter.model={drafter.resolve()}")
    if load(profile).pin.engine is EngineName.SGLANG:
        sets += [
            "engine_flags.export-metrics-to-file=true",
            f"engine_flags.export-metrics-to-file-dir={requests}",
        ]
    loaded = load(profile, sets)
    return Arm(profile, tuple(sets), loaded.profile, loaded.command)


def serve(served: Arm, workload: Workload, requests: Path) -> tuple[list[str], int, SpeculationCounters]:
    """Start, ask one prompt after the other, stop; the answers, their tokens, and what was counted meanwhile.

    Asked without streaming: SGLang refuses a stream that is to carry token ids.

    Raises:
        DraftgateError: it does not start, or does not answer.
    """
    speculation = served.profile.speculation
    assert speculation is not None
    with Interrupts() as interrupts, Stage(interrupts, lambda text: print(text, flush=True)) as stage:
        stage.start(served, sidecar=False)
        before, skip = _counters(served), len(_request_lines(requests))
        answers = [_ask(served, request) for request in workload.requests(served.profile.target.served_name)]
        after = _counters(served)
        wait_until(lambda: before is not None or len(_request_lines(requests)) == skip + workload.size, 10)
        stage.stop()
    texts, tokens = [text for text, _ in answers], sum(count for _, count in answers)
    if before is not None and after is not None:
        return texts, tokens, since(after, before)
    return texts, tokens, drafts_of_requests(requests, skip, speculation.num_speculative_tokens)


def _ask(served: Arm, request: ChatRequest) -> tuple[str, int]:
    streamed = request.body()
    body = {key: streamed[key] for key in ("model", "messages", "max_tokens", "temperature", "top_p", "seed")}
    url = f"{served.command.base_url}/v1/chat/completions"
    sent = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(sent, timeout=300) as response:
            answer = json.load(response)
    except (OSError, ValueError) as error:
        raise EngineUnreachable(
            "a request failed", where=url, why=f"{type(error).__name__}: {error}"
        ) from error
    return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]


def _counters(served: Arm) -> SpeculationCounters | None:
    """The engine's counters at rest; None where it has none."""
    pin = served.command.pin

    async def scrape() -> EngineSample:
        answer = exchange(f"{served.command.base_url}/metrics", seconds=10, max_bytes=2**22)
        sample = read(decode(answer.body), rules_for(Dialect(pin.engine.value), pin.version))
        if sample is None:
            raise EngineUnreachable("the engine publishes no metrics", where=served.command.base_url)
        return sample

    return asyncio.run(edge(scrape)).sample.speculation


def telling_lines(log: str, drafter: Path | None) -> list[str]:
    """What the log says of the drafter, each line once, without times, pids and folders."""
    found: dict[str, None] = {}
    # vLLM calls its core dead when it is told to stop.
    for line in log.partition("] SIGTERM: ")[0].splitlines():
        line = _PREFIX.sub("", line)
        if _TELLING.search(line) and not _NOISE.search(line):
            line = line.replace(str(drafter.resolve()), "DRAFTER") if drafter else line
            found[re.sub(r"/\S*/", "…/", re.sub(r"0x\w+|pid=?\s?\d+", "…", line)).strip()] = None
    return list(found)


def measure(
    profile: str,
    drafter: Path | None,
    workload: Workload,
    good: list[str] | None,
    sets: tuple[str, ...] = (),
) -> tuple[dict[str, object], list[str] | None]:
    """One drafter's entry, and its answers; None where it did not serve.

    Args:
        good: the good drafter's answers, to compare with.
        sets: on top of the profile.
    """
    with tempfile.TemporaryDirectory() as folder:
        requests = Path(folder)
        served = arm(profile, drafter, requests, sets)
        error: DraftgateError | None = None
        try:
            answers, tokens, counted = serve(served, workload, requests)
        except DraftgateError as caught:
            error = caught
    log = native.log_path(sidecar=False).read_text(errors="replace")
    said = telling_lines(log, drafter)
    if error is not None:
        return {"served": False, "error": error.what, "why": error.why, "log": said}, None
    entry: dict[str, object] = {
        "served": True,
        "acceptance_rate": _rounded(acceptance_rate(counted)),
        "acceptance_length": _rounded(acceptance_length(counted)),
        "per_position": [_rounded(rate) for rate in per_position_rates(counted) or ()],
        "drafts": counted.drafts,
        "proposed": counted.proposed,
        "accepted": counted.accepted,
        "accepted_per_position": list(counted.accepted_per_position),
        "tokens": tokens,
        "equal_answers": sum(a == b for a, b in zip(answers, good or answers, strict=True)),
        "log": said,
    }
    return entry, answers


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@contextmanager
def _turn(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    with file.open("a") as held:
        flock(held, LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.wrongdrafters.measure", description=__doc__)
    parser.add_argument("--profile", required=True, help="with a drafter and num_speculative_tokens")
    parser.add_argument("--drafters", type=Path, required=True, help="as tools.wrongdrafters made them")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=data_root() / "models" / "eval-prompts.jsonl")
    parser.add_argument("--turn", type=Path, help="a file to lock for each start, where engines take turns")
    options = parser.parse_args()
    workload = Workload(load_prompts(options.prompts), Sampling(max_tokens=_NEW_TOKENS), warmup=0)
    loaded = load(options.profile)
    assert loaded.profile.speculation is not None
    record: dict[str, object] = {
        "engine": str(loaded.pin.engine),
        "version": loaded.pin.version,
        "torch": loaded.pin.torch,
        "cpu": receipt.machine().cpu,
        "cpus": len(os.sched_getaffinity(0)),
        "profile": options.profile,
        "num_speculative_tokens": loaded.profile.speculation.num_speculative_tokens,
        "workload": workload.description(),
    }
    drafters: dict[str, object] = {}
    good: list[str] | None = None
    for name in (GOOD, *(fault.name for fault in FAULTS)):
        folder = None if name == GOOD else options.drafters / name
        with _turn(options.turn):
            print(name, flush=True)
            entry, answers = measure(options.profile, folder, workload, good)
        good = answers if name == GOOD else good
        drafters[name] = entry
        print({key: value for key, value in entry.items() if key != "log"}, flush=True)
        receipt.write_json(options.out, {**record, "drafters": drafters})
        if good is None:
            print("the good drafter does not serve: there is nothing to compare with", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
