"""`python -m tools.tinymodel`: make the bundled tiny target and its drafter."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from .run import Run
from .settings import CPU, GPU, scaled

STAGES = ("corpus", "target", "text", "drafter", "evaluate")


def main() -> None:
    """Parse, choose the budget, run the stages that are not done."""
    parser = argparse.ArgumentParser(prog="python -m tools.tinymodel", description=__doc__)
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("models"))
    parser.add_argument(
        "--work", type=Path, default=Path(".tinymodel"), help="intermediate files, for resuming"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=NUMBER", help="change the budget"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.stages) - set(STAGES))
    if unknown:
        parser.error(f"no such stage: {', '.join(unknown)} (stages: {', '.join(STAGES)})")
    overrides = dict(item.split("=", 1) for item in options.set)
    budget = scaled(GPU if options.device == "cuda" else CPU, {k: float(v) for k, v in overrides.items()})
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    run = Run(options.out, options.work, torch.device(options.device), options.seed, budget)
    for name, (stage, result) in run.stages().items():
        if name not in (options.stages or STAGES):
            continue
        if result is not None and result.exists():
            print(f"{name}: {result} exists, nothing to do")
            continue
        print(f"{name}: begins", flush=True)
        stage()


if __name__ == "__main__":
    main()
