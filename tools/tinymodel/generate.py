"""Greedy text by the target: cached, batched, prompts of different lengths in one batch."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from .target import Target


@torch.no_grad()
def greedy(target: Target, prompts: list[list[int]], length: int, free: int = 0, seed: int = 0) -> Tensor:
    """Return ids [len(prompts), length]: each prompt (BOS included), then the target's most likely tokens.

    The first `free` tokens after a prompt are sampled at temperature 1 instead; they lead the text away from
    what the target knows by heart. Prompts are fed token by token from the shortest one's end on, so no
    padding exists, and the result is the same as for each prompt alone.
    """
    target.eval()
    device = next(target.parameters()).device
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    ids = torch.zeros(len(prompts), length, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    ids = ids.to(device)
    cache = target.cache(len(prompts), length, device)
    generator = torch.Generator(device).manual_seed(seed)
    shortest = int(lengths.min())
    logits, _ = target(ids[:, :shortest], cache)
    for position in range(shortest, length):
        last = logits[:, -1]
        chosen = last.argmax(-1)
        if free:
            drawn = torch.multinomial(last.float().softmax(-1), 1, generator=generator).squeeze(1)
            chosen = torch.where(position < lengths + free, drawn, chosen)
        ids[:, position] = torch.where(position < lengths, ids[:, position], chosen)
        if position + 1 < length:
            logits, _ = target(ids[:, position : position + 1], cache, position)
    return ids


def distinct_bigram_ratio(ids: list[int]) -> float:
    """Return distinct bigrams / bigrams of one output; near 0 for a loop, about 0.9 for ordinary code."""
    pairs = list(itertools.pairwise(ids))
    return len(set(pairs)) / max(1, len(pairs))
