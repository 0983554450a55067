"""What the target and the drafter are both built of: Llama's attention projections, MLP and rotary positions.

Attribute names are the tensor names of Hugging Face checkpoints, so a state dict is a checkpoint.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .settings import Shape


class Norm(nn.RMSNorm):
    """RMSNorm in float32 whatever the autocast type, as engines compute it; a mixed call is far slower."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return super().forward(x.float())


class Mlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)); [..., hidden] to [..., hidden]."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to the last dimension."""
        y: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Projections(nn.Module):
    """Queries, keys and values with rotary positions, and the output projection of an attention."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        inner = shape.heads * shape.head_dim
        self.heads = shape.heads
        self.q_proj = nn.Linear(width, inner, bias=False)
        self.k_proj = nn.Linear(width, inner, bias=False)
        self.v_proj = nn.Linear(width, inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.hidden, bias=False)

    def split(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v for x [batch, time, width]: each [batch, heads, time, head_dim], q and k rotated."""
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotated(q, turns), rotated(k, turns), v

    def merge(self, x: Tensor) -> Tensor:
        """Return [batch, time, hidden] for the heads' results [batch, heads, time, head_dim]."""
        y: Tensor = self.o_proj(x.transpose(1, 2).flatten(2))
        return y


def rotary(shape: Shape, start: int, length: int, device: torch.device) -> Tensor:
    """Return cosines and sines for `length` positions from `start`, [2, length, head_dim], in radians' units.

    Llama's layout: dimension i turns together with i + head_dim/2, by position * theta^(-2i/head_dim).
    """
    half = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32) / shape.head_dim
    angles = torch.arange(start, start + length, device=device).float()[:, None] * shape.rope_theta**-half
    angles = torch.cat([angles, angles], dim=-1)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Turn x [batch, heads, time, head_dim] by `rotary`'s angles; the type of x is kept."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = turns.to(x.dtype)
    turned: Tensor = x * cosine + torch.cat([-high, low], dim=-1) * sine
    return turned


def initialise(module: nn.Module, seed: int) -> None:
    """Draw all matrices from N(0, 0.02), seeded; norms stay at one."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        if parameter.dim() > 1:
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)


def round_to_bf16(module: nn.Module) -> None:
    """Round all weights to bfloat16 and back: from here on the module is what the checkpoint will hold."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.bfloat16().to(parameter.dtype))
