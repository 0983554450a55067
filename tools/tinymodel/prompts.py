"""The 50 evaluation prompts: function and class regions from held-out files, drawn by seed alone."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer

from .corpus import SourceFile
from .vocabulary import encode

COUNT = 50
SHORTEST, LONGEST = 64, 160
REGION = re.compile(r" *(async def|def|class) ")


@dataclass(frozen=True)
class Prompt:
    """The first lines of a region, 64 to 160 tokens, ending with a full line."""

    id: str
    file: str
    prompt: str


def region(tokenizer: Tokenizer, lines: list[str], start: int, wanted: int) -> str | None:
    """Return whole lines from `start` on, at least `wanted` tokens; None where no fitting end is found.

    A prompt never ends where a blank line follows: "\\n" and "\\n\\n" are different tokens, and the cut would
    show the model a token sequence it has never seen.
    """
    for end in range(start + 1, len(lines)):
        if not lines[end].strip() or not lines[end - 1].strip():
            continue
        text = "".join(lines[start:end])
        length = len(encode(tokenizer, text))
        if length > LONGEST:
            return None
        if length >= wanted:
            return text
    return None


def draw(tokenizer: Tokenizer, files: list[SourceFile], seed: int) -> list[Prompt]:
    """Draw the prompts from the held-out files, one region at most per draw, none twice."""
    rng = random.Random(seed)
    held_out = [file for file in files if file.held_out]
    found: dict[tuple[str, int], Prompt] = {}
    while len(found) < COUNT:
        file = rng.choice(held_out)
        lines = file.text.splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if REGION.match(line)]
        if not starts:
            continue
        start = rng.choice(starts)
        text = region(tokenizer, lines, start, rng.randint(SHORTEST, LONGEST - 32))
        if text is not None and (file.file, start) not in found:
            found[file.file, start] = Prompt(f"eval-{len(found):02d}", file.file, text)
    return list(found.values())


def write(prompts: list[Prompt], path: Path) -> None:
    """Write one JSON object a line."""
    path.write_text("".join(json.dumps(asdict(prompt)) + "\n" for prompt in prompts), encoding="utf-8")


def read(path: Path) -> list[Prompt]:
    """Read what `write` wrote."""
    return [Prompt(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
