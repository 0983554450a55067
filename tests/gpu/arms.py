"""One pair of profiles, with the drafter and without, on a GPU: answers, counters, speeds, log lines."""

from __future__ import annotations

import re
import socket
import statistics
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from draftgate import receipt
from draftgate.bench import demo as bench
from draftgate.bench.report import receipt_of
from draftgate.bench.run import Result, run
from draftgate.bench.stage import Arm, Interrupts, Stage
from draftgate.bench.subject import endpoint_of, engine_facts, model_digests
from draftgate.bench.workload import Workload, load_prompts
from draftgate.cli.load import load
from draftgate.client.completion import Sampling
from draftgate.client.exchange import exchange
from draftgate.data import data_root
from draftgate.errors import DraftgateError
from draftgate.runtime import native

NEW_TOKENS = 128
REPEATS = 5
# Requests in flight: prompts asked, so that a window holds some thousand tokens and its tail weighs little.
SPEEDS = {1: 6, 8: 50, 32: 50}
_WINDOW_ROUNDS = {32: 2}


@dataclass(frozen=True)
class Pair:
    """Attributes:
    engine: of both profiles.
    sets: for both; ``drafter_sets`` for the one with the drafter alone.
    expected: by what it proves, a pattern that a line of the engine's log must match.
    """

    engine: str
    expected: dict[str, str]
    sets: tuple[str, ...] = ()
    drafter_sets: tuple[str, ...] = ()


_VLLM_LINES = {
    "latent attention in Triton": r"Using .*TRITON_MLA",
    "experts in Marlin": r"Using .*MARLIN.* WNA16 MoE|CompressedTensorsWNA16MarlinMoEMethod",
}
_SGLANG_LINES = {"experts in Marlin": r"Using CompressedTensorsWNA16MarlinMoEMethod"}
PAIRS = {
    "vllm": Pair("vllm", _VLLM_LINES),
    "vllm-mla-drafter": Pair(
        "vllm",
        _VLLM_LINES,
        drafter_sets=(
            "drafter.model={models}/kimi-drafter-mla",
            "speculation.engine_keys.attention_backend=TRITON_MLA",
        ),
    ),
    "sglang": Pair("sglang", {**_SGLANG_LINES, "attention in Triton": r"attention_backend='triton'"}),
    "sglang-flashinfer": Pair(
        "sglang",
        {**_SGLANG_LINES, "attention in FlashInfer": r"attention_backend='flashinfer'"},
        sets=("engine_flags.attention-backend=flashinfer",),
    ),
    "sglang-mla-drafter": Pair(
        "sglang",
        {**_SGLANG_LINES, "attention in Triton": r"attention_backend='triton'"},
        drafter_sets=("drafter.model={models}/kimi-drafter-mla",),
    ),
}


@dataclass
class Record:
    """What one pair gave, written after every step; ``errors`` say which steps gave nothing."""

    file: Path
    values: dict[str, object] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def note(self, name: str, value: object) -> None:
        self.values[name] = value
        receipt.write_json(self.file, {**self.values, "seconds": self.seconds, "errors": self.errors})

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A fault ends the step, not the pair: a GPU's minutes are few."""
        began = time.monotonic()
        try:
            yield
        except DraftgateError as error:
            self.errors[name] = "\n".join(error.lines())
        except Exception:
            self.errors[name] = traceback.format_exc()
        self.seconds[name] = round(time.monotonic() - began, 1)
        print(f"{self.file.stem} {name}: {self.seconds[name]} s", self.errors.get(name, ""), flush=True)
        self.note("finished", name)


def make_arm(profile: str, sets: tuple[str, ...], models: Path) -> Arm:
    """The profile on free ports, with its models from ``models``."""
    ports = []
    for path in ("server.port", "sidecar.port"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(f"{path}={probe.getsockname()[1]}")
    sets = (f"target.model={models}/kimi-target", *ports, *(one.format(models=models) for one in sets))
    loaded = load(profile, sets)
    return Arm(profile, sets, loaded.profile, loaded.command)


def workload(concurrency: int, prompts: int = 50, *, same_length: bool = True) -> Workload:
    """Greedy answers to the first of the bundled prompts, each of `NEW_TOKENS` tokens if ``same_length``."""
    asked = load_prompts(data_root() / "models" / "eval-prompts.jsonl")[:prompts]
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=same_length)
    rounds = _WINDOW_ROUNDS.get(concurrency, 1)
    return Workload(asked, sampling, concurrency, repeats=rounds, warmup=min(2 * concurrency, 16))


def measure(name: str, models: Path, out: Path, *, speeds: bool = True) -> Record:
    """Run one pair; everything it gives lies in ``out``, also when a step fails."""
    pair = PAIRS[name]
    record = Record(out / f"{name}.json")
    drafter = (f"drafter.model={models}/kimi-drafter-llama",)
    plain = make_arm(f"kimi-small-{pair.engine}", pair.sets, models)
    speculative = make_arm(
        f"kimi-small-{pair.engine}-eagle", (*drafter, *pair.sets, *pair.drafter_sets), models
    )
    told = workload(1, same_length=False)
    fast: bench.WithDrafter | None = None
    with Interrupts() as interrupts, Stage(interrupts, lambda text: print(text, flush=True)) as stage:
        with _up(stage, speculative, record, "with drafter", pair, out) as sidecar_url:
            if sidecar_url is not None:
                with record.step("answers with drafter"):
                    fast = bench.measure_with_drafter(speculative, sidecar_url, told, lambda _: None)
                    record.note("with drafter", _receipt(fast.result, speculative))
                    record.note("sidecar counters", asdict(fast.counters))
                if speeds:
                    _speeds(speculative, record, "with drafter")
                _keep_expositions(speculative, sidecar_url, out / f"{name}-eagle")
        with _up(stage, plain, record, "plain", pair, out) as sidecar_url:
            if sidecar_url is not None:
                with record.step("answers plain"):
                    slow = bench.measure_plain(plain, told, lambda _: None)
                    record.note("plain", _receipt(slow, plain))
                    if fast is not None:
                        found = bench.compare_with_plain(plain, slow, fast.result)
                        record.note("comparisons", [one.line() for one in found.comparisons])
                        if not found.lossless:
                            record.errors["answers"] = "differ by more than rounding"
                if speeds:
                    _speeds(plain, record, "plain")
                _keep_expositions(plain, sidecar_url, out / f"{name}-plain")
    return record


@contextmanager
def _up(stage: Stage, arm: Arm, record: Record, what: str, pair: Pair, out: Path) -> Iterator[str | None]:
    """Starts the arm, yields its sidecar's address, None where it did not start; stops it, keeps its log."""
    started = None
    with record.step(f"start {what}"):
        started = stage.start(arm, sidecar=True)
    try:
        yield started.sidecar_url if started else None
    finally:
        with record.step(f"stop {what}"):
            stage.stop()
        log = native.log_path(sidecar=False)
        text = log.read_text(errors="replace") if log.is_file() else ""
        (out / f"{record.file.stem}-{what.replace(' ', '-')}.log").write_text(text)
        lines = proofs(text, pair.expected)
        record.errors |= {f"{what}: {proof}": "no such line" for proof, line in lines.items() if line is None}
        record.note(f"log lines {what}", lines)


def proofs(log: str, expected: Mapping[str, str]) -> dict[str, str | None]:
    """By what it proves, the first text of the log that matches; None where nothing does."""
    found = {proof: re.search(pattern, log) for proof, pattern in expected.items()}
    return {proof: match.group() if match else None for proof, match in found.items()}


def _speeds(arm: Arm, record: Record, what: str) -> None:
    endpoint = endpoint_of(arm.profile, arm.command)
    for concurrency, prompts in SPEEDS.items():
        with record.step(f"speed {what} at {concurrency}"):
            results = [run(endpoint, workload(concurrency, prompts)) for _ in range(REPEATS)]
            rates = [one.figures.tokens_per_second for one in results]
            known = [rate for rate in rates if rate is not None]
            record.note(
                f"tokens per second {what} at {concurrency}",
                {
                    "repeats": rates,
                    "median": statistics.median(known),
                    "least": min(known),
                    "most": max(known),
                    "refused": sorted({finding.text for one in results for finding in one.refused}),
                    "notes": sorted({f.text for one in results for f in one.findings if not f.refuses}),
                    "receipt": _receipt(results[-1], arm),
                },
            )


def _receipt(result: Result, arm: Arm) -> dict[str, object]:
    made = receipt_of(
        result,
        kind="bench",
        engine=engine_facts(arm.profile, arm.command),
        models=model_digests(arm.profile),
    )
    return replace(made, requests=()).as_json()


def _keep_expositions(arm: Arm, sidecar_url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, url in (("engine", arm.command.base_url), ("sidecar", sidecar_url)):
        try:
            answer = exchange(f"{url}/metrics", seconds=10, max_bytes=2**23)
            (folder / f"{name}.prom").write_bytes(answer.body)
        except DraftgateError as error:
            (folder / f"{name}.prom").write_text("# " + "; ".join(error.lines()) + "\n")
