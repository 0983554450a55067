"""Sizes and step budgets of the tiny target and its drafter: all the numbers that decide a run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """Sizes shared by the target and the drafter.

    `aux_layers` are inputs of layer L, as vLLM counts them: its default [2, n//2, n-3] for n = 8 layers.
    Fewer layers make two of them fall together.
    """

    vocab: int = 2048
    draft_vocab: int = 1536
    hidden: int = 192
    heads: int = 3
    head_dim: int = 64
    layers: int = 8
    target_mlp: int = 512
    drafter_mlp: int = 1024
    max_positions: int = 2048
    rope_theta: float = 10000.0
    rms_eps: float = 1e-5
    aux_layers: tuple[int, int, int] = (2, 4, 5)


@dataclass(frozen=True)
class Budget:
    """Steps and batch sizes of one run.

    Lengths are tokens, batches are sequences. Seconds bound the steps of a training.
    """

    target_steps: int
    target_batch: int
    target_length: int
    target_lr: float
    dropout: float
    texts: int
    text_batch: int
    text_length: int
    drafter_steps: int
    drafter_batch: int
    drafter_lr: float
    unrolled_steps: int = 5
    target_seconds: float = math.inf
    drafter_seconds: float = math.inf


GPU = Budget(
    target_steps=2500,
    target_batch=128,
    target_length=512,
    target_lr=3e-3,
    dropout=0.1,
    texts=32768,
    text_batch=4096,
    text_length=320,
    drafter_steps=5000,
    drafter_batch=128,
    drafter_lr=2e-3,
)

# For an hour on two cores: shorter sequences and about a fortieth of the tokens.
CPU = Budget(
    target_steps=3000,
    target_batch=16,
    target_length=256,
    target_lr=3e-3,
    dropout=0.0,
    texts=1024,
    text_batch=128,
    text_length=224,
    drafter_steps=1500,
    drafter_batch=8,
    drafter_lr=2e-3,
)


def scaled(budget: Budget, overrides: dict[str, float]) -> Budget:
    """Return the budget with the named fields replaced, each cast to the field's own type."""
    types = {field.name: type(getattr(budget, field.name)) for field in dataclasses.fields(budget)}
    unknown = sorted(set(overrides) - set(types))
    if unknown:
        msg = f"no such budget field: {', '.join(unknown)} (known: {', '.join(types)})"
        raise ValueError(msg)
    return dataclasses.replace(budget, **{name: types[name](value) for name, value in overrides.items()})
