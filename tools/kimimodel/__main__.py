"""`python -m tools.kimimodel OUT`: make a small model shaped like Kimi-K2.5, and two drafters for it."""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from pathlib import Path

import torch

from tools.tinymodel.settings import scaled

from .run import KimiRun
from .settings import SIZES


def main() -> None:
    """Parse, run the stages that are not done, say how long each took."""
    parser = argparse.ArgumentParser(prog="python -m tools.kimimodel", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("stages", nargs="*", help="default: all; see the README")
    parser.add_argument("--work", type=Path, help="intermediate files, for resuming; default: OUT/work")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, help="steps of each training, instead of budgets in seconds")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=NUMBER", help="change the budget"
    )
    options = parser.parse_args()
    shape, budget = SIZES[options.size]
    if options.steps is not None:
        budget = dataclasses.replace(
            budget,
            target_steps=options.steps,
            drafter_steps=options.steps,
            target_seconds=math.inf,
            drafter_seconds=math.inf,
        )
    overrides = dict(item.split("=", 1) for item in options.set)
    budget = scaled(budget, {name: float(value) for name, value in overrides.items()})
    work = options.work or options.out / "work"
    for folder in (options.out, work):
        folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    run = KimiRun(options.out, work, torch.device(options.device), options.seed, budget, shape)
    known = run.stages()
    if unknown := sorted(set(options.stages) - set(known)):
        parser.error(f"no such stage: {', '.join(unknown)} (stages: {', '.join(known)})")
    began = time.monotonic()
    for name, (stage, result) in known.items():
        if options.stages and name not in options.stages:
            continue
        if result is not None and result.exists():
            print(f"{name}: {result} exists, nothing to do")
            continue
        print(f"{name}: begins at {time.monotonic() - began:.0f} s", flush=True)
        stage()
    print(f"all stages: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
