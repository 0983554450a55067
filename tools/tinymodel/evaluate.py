"""What the pair reaches on the evaluation prompts: speculative decoding replayed offline, in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .drafter import Drafter
from .generate import distinct_bigram_ratio, greedy
from .prompts import Prompt
from .target import Target
from .vocabulary import BOS_ID, EOS_ID, encode

NEW_TOKENS = 128
K = 3


@dataclass(frozen=True)
class Figures:
    """Figures over all prompts; per position is unconditional: accepted at that position / verify steps."""

    acceptance_rate: float
    acceptance_length: float
    per_position: tuple[float, ...]
    verify_steps: int
    distinct_bigram_ratio: float
    lowest_bigram_ratio: float
    prompts_below_0_3: int
    draft_vocabulary_coverage: float
    ended_early: int


@torch.no_grad()
def continuations(
    target: Target, tokenizer: Tokenizer, prompts: list[Prompt]
) -> tuple[list[list[int]], Tensor]:
    """Return the prompts' ids and [prompts, time] ids that hold NEW_TOKENS + K greedy tokens after each."""
    ids = [[BOS_ID, *encode(tokenizer, prompt.prompt)] for prompt in prompts]
    return ids, greedy(target, ids, max(len(prompt) for prompt in ids) + NEW_TOKENS + K)


@torch.no_grad()
def matches(target: Target, drafter: Drafter, tokens: Tensor, steps: int) -> Tensor:
    """Return, for each step k and row t of [batch, time] tokens, whether step k drafts token t + 2: bool."""
    _, aux = target(tokens)
    logits = drafter.unroll(target.model.embed_tokens(tokens[:, 1:]), aux[:, :-1], steps)
    drafted = torch.stack([drafter.kept[step.argmax(-1)] for step in logits])
    return drafted[:, :, :-1] == tokens[:, 2:]


def walk(hits: Tensor, prompt_length: int, new_tokens: int) -> list[int]:
    """Return the accepted drafts of each verify step of one sequence; hits [steps, rows] as in `matches`.

    The first new token comes from the prompt's own pass; then each step drafts from the last emitted token.
    A chain counts only up to its first miss, so what follows a wrong draft is moot: the replay is exact.
    """
    accepted, row = [], prompt_length - 1
    while row + 2 < prompt_length + new_tokens:
        count = 0
        while count < len(hits) and bool(hits[count, row + count]):
            count += 1
        accepted.append(count)
        row += count + 1
    return accepted


def measure(target: Target, drafter: Drafter, ids: list[list[int]], texts: Tensor) -> Figures:
    """Replay greedy speculation with K drafts over all prompts, as `continuations` returned them."""
    hits = matches(target, drafter, texts, K).cpu()
    steps: list[int] = []
    ratios, covered, early = [], [], 0
    for number, prompt in enumerate(ids):
        output = texts[number, len(prompt) : len(prompt) + NEW_TOKENS].tolist()
        if EOS_ID in output:
            early += 1
            output = output[: output.index(EOS_ID) + 1]
        steps += walk(hits[:, number], len(prompt), len(output))
        ratios.append(distinct_bigram_ratio(output))
        covered += [bool(drafter.t2d[token]) for token in output]
    positions = tuple(round(sum(count > place for count in steps) / len(steps), 4) for place in range(K))
    return Figures(
        acceptance_rate=round(sum(steps) / (K * len(steps)), 4),
        acceptance_length=round(1 + sum(steps) / len(steps), 4),
        per_position=positions,
        verify_steps=len(steps),
        distinct_bigram_ratio=round(sum(ratios) / len(ratios), 4),
        lowest_bigram_ratio=round(min(ratios), 4),
        prompts_below_0_3=sum(ratio < 0.3 for ratio in ratios),
        draft_vocabulary_coverage=round(sum(covered) / len(covered), 4),
        ended_early=early,
    )


def bigram_ratio(target: Target, tokenizer: Tokenizer, prompts: list[Prompt]) -> float:
    """Return the mean distinct-bigram ratio of the target's greedy continuations."""
    ids, texts = continuations(target, tokenizer, prompts)
    rows = zip(ids, texts.tolist(), strict=True)
    ratios = [distinct_bigram_ratio(row[len(own) : len(own) + NEW_TOKENS]) for own, row in rows]
    return sum(ratios) / len(ratios)


def samples(
    tokenizer: Tokenizer, prompts: list[Prompt], ids: list[list[int]], texts: Tensor, count: int = 3
) -> list[dict[str, str]]:
    """Return the greedy continuations of the first prompts as text."""
    return [
        {"id": prompt.id, "continuation": tokenizer.decode(row[len(own) : len(own) + NEW_TOKENS].tolist())}
        for prompt, own, row in zip(prompts[:count], ids[:count], texts[:count], strict=True)
    ]
