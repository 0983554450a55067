"""What `draftgate render` costs, as a ratio to what any Typer + pydantic program costs on the same machine.

Prints medians over paired runs; decides nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
OURS = [sys.executable, "-m", "draftgate", "render", "vllm-cpu-eagle"]
PEER = [sys.executable, "-c", "import typer, pydantic, tomlkit; from pydantic import BaseModel, Field"]


def wall(argv: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    wall(OURS)
    wall(PEER)
    pairs = [(wall(OURS), wall(PEER)) for _ in range(RUNS)]
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"draftgate render: {ours:.3f} s wall (goal: under 0.4), imports: {peer:.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
