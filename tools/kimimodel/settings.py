"""Sizes and step budgets of the Kimi-shaped target and its drafters."""

from __future__ import annotations

from dataclasses import dataclass

from tools.tinymodel.settings import Budget, Shape


@dataclass(frozen=True)
class KimiShape(Shape):
    """Sizes of a DeepSeek-V3 text model; those of its attention are Kimi-K2.5's own, for engines' kernels.

    `head_dim` is the rotary part of a query or key, and the width of a head in the Llama-style drafter;
    `target_mlp` is the width of the dense layers. Experts are cut into 8 by tensor parallelism, and Marlin
    takes parts that are a multiple of 64 wide, of a hidden size that is a multiple of 128.
    """

    hidden: int = 256
    heads: int = 8
    layers: int = 12
    target_mlp: int = 1024
    rope_theta: float = 50000.0
    # transformers norms the latents with 1e-6 whatever config.json says; engines go by config.json.
    rms_eps: float = 1e-6
    aux_layers: tuple[int, int, int] = (2, 6, 9)
    nope_dim: int = 128
    value_dim: int = 128
    query_rank: int = 256
    latent: int = 512
    dense_layers: int = 1
    experts: int = 8
    experts_per_token: int = 4
    shared_experts: int = 1
    expert_mlp: int = 512
    routed_scaling: float = 2.827


FULL_SHAPE = KimiShape()
# Every part is there, in seconds on a CPU; too narrow for tensor parallelism.
MINI_SHAPE = KimiShape(
    hidden=128,
    heads=8,
    layers=8,
    target_mlp=256,
    drafter_mlp=256,
    aux_layers=(2, 4, 5),
    query_rank=64,
    experts=4,
    experts_per_token=2,
    expert_mlp=64,
)

# Seconds are for one NVIDIA H200; more steps than fit are not made.
FULL = Budget(
    target_steps=3000,
    target_batch=64,
    target_length=512,
    target_lr=2e-3,
    dropout=0.0,
    texts=12288,
    text_batch=2048,
    text_length=224,
    drafter_steps=4000,
    drafter_batch=128,
    drafter_lr=2e-3,
    unrolled_steps=4,
    target_seconds=200,
    drafter_seconds=60,
)
MINI = Budget(
    target_steps=20,
    target_batch=4,
    target_length=64,
    target_lr=2e-3,
    dropout=0.1,
    texts=16,
    text_batch=16,
    text_length=180,
    drafter_steps=20,
    drafter_batch=4,
    drafter_lr=2e-3,
    unrolled_steps=4,
)
SIZES = {"full": (FULL_SHAPE, FULL), "mini": (MINI_SHAPE, MINI)}
