"""The wrong drafters on one engine, side by side: each with its own process, state folder and lock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from draftgate import receipt
from draftgate.bench.workload import Workload, load_prompts
from draftgate.client.completion import Sampling
from draftgate.data import data_root
from tools.wrongdrafters.faults import FAULTS, make
from tools.wrongdrafters.measure import measure

GOOD = "good"
LANES = 6


def one(engine: str, name: str, models: Path, file: Path) -> None:
    """Measure one drafter in this process."""
    folder = models / ("kimi-drafter-llama" if name == GOOD else f"wrong/{name}")
    prompts = load_prompts(data_root() / "models" / "eval-prompts.jsonl")
    # A GPU gives its processes turns: side by side each is slow.
    asked = Workload(prompts[:24], Sampling(max_tokens=96, temperature=0.0), warmup=0)
    sets = (f"target.model={models}/kimi-target", "memory.gpu_fraction=0.05")
    for _ in range(2):  # an engine that sizes its cache refuses when a neighbour frees memory just then
        entry, answers = measure(f"kimi-small-{engine}-eagle", folder, asked, None, sets)
        if answers is not None:
            break
    receipt.write_json(file, {"entry": entry, "answers": answers})


def measure_all(engine: str, models: Path, work: Path, out: Path) -> None:
    """Measure the good drafter and each wrong one; what is there already is kept."""
    if not (models / "wrong").is_dir():
        made = make(models / "kimi-drafter-llama", models / "wrong", target=None, seed=7)
        print({name: str(found) for name, found in made.items()}, flush=True)
    waiting = [
        name for name in (GOOD, *(fault.name for fault in FAULTS)) if not _file(out, engine, name).is_file()
    ]
    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(lambda name: _run(engine, name, models, work, out), waiting))


def _file(out: Path, engine: str, name: str) -> Path:
    return out / f"wrong-{engine}-{name}.json"


def _run(engine: str, name: str, models: Path, work: Path, out: Path) -> None:
    own = work / f"lane-{engine}-{name}"
    environment = os.environ | {"DRAFTGATE_STATE_DIR": f"{own}/state", "DRAFTGATE_LOCK_DIR": f"{own}/lock"}
    command = [sys.executable, "-m", "tests.gpu", "wrong-one", engine, name, "--models", str(models)]
    own.mkdir(parents=True, exist_ok=True)
    with (own / "log").open("wb") as log:
        subprocess.run([*command, "--out", str(out)], env=environment, stdout=log, stderr=log, check=False)


def collect(engine: str, out: Path) -> dict[str, object]:
    """All entries, with how many answers equal the good drafter's."""
    found = {
        name: json.loads(_file(out, engine, name).read_text())
        for name in (GOOD, *(fault.name for fault in FAULTS))
        if _file(out, engine, name).is_file()
    }
    good = found.get(GOOD, {}).get("answers")
    for one_of in found.values():
        answers = one_of.pop("answers")
        if answers is not None and good is not None:
            one_of["entry"]["equal_answers"] = sum(a == b for a, b in zip(answers, good, strict=True))
    return {name: one_of["entry"] for name, one_of in found.items()}
