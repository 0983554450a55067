"""DeepSeek's multi-head latent attention (MLA, arXiv 2405.04434), with and without a cache of latents."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tinymodel.layers import Norm, rotated

from .settings import KimiShape


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate neighbouring pairs of x [..., head_dim], as DeepSeek does; even places come out before odd ones.

    The order of the result does not matter, as queries and keys share it.
    """
    return rotated(torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1), turns)


class LatentAttention(nn.Module):
    """Attention whose keys and values of all heads are made of one latent and one rotary key a token."""

    def __init__(self, shape: KimiShape, width: int) -> None:
        super().__init__()
        self.shape = shape
        self.q_a_proj = nn.Linear(width, shape.query_rank, bias=False)
        self.q_a_layernorm = Norm(shape.query_rank, eps=shape.rms_eps)
        self.q_b_proj = nn.Linear(
            shape.query_rank, shape.heads * (shape.nope_dim + shape.head_dim), bias=False
        )
        self.kv_a_proj_with_mqa = nn.Linear(width, shape.latent + shape.head_dim, bias=False)
        self.kv_a_layernorm = Norm(shape.latent, eps=shape.rms_eps)
        self.kv_b_proj = nn.Linear(shape.latent, shape.heads * (shape.nope_dim + shape.value_dim), bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.value_dim, shape.hidden, bias=False)

    def queries(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the plain and the rotated part of the queries, each [batch, heads, time, part]."""
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.unflatten(-1, (self.shape.heads, -1)).transpose(1, 2)
        plain, rotary = q.split([self.shape.nope_dim, self.shape.head_dim], dim=-1)
        return plain, turned(rotary, turns)

    def latents(self, x: Tensor, turns: Tensor) -> Tensor:
        """Return what is cached of x [batch, time, width]: normed latents and rotated keys, side by side."""
        latent, rotary = self.kv_a_proj_with_mqa(x).split([self.shape.latent, self.shape.head_dim], dim=-1)
        return torch.cat([self.kv_a_layernorm(latent), turned(rotary, turns)], dim=-1)

    def expanded(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of all heads, each [batch, heads, time, part], for `latents`' result."""
        latent, rotary = latents.split([self.shape.latent, self.shape.head_dim], dim=-1)
        both = self.kv_b_proj(latent).unflatten(-1, (self.shape.heads, -1)).transpose(1, 2)
        plain, v = both.split([self.shape.nope_dim, self.shape.value_dim], dim=-1)
        shared = rotary[:, None].expand(-1, self.shape.heads, -1, -1).to(plain.dtype)
        return torch.cat([plain, shared], dim=-1), v

    def split(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k, v for x [batch, time, width], each [batch, heads, time, nope + rotary].

        Values are narrower and padded with zeros, which `merge` takes off: the fast kernels want one width.
        """
        plain, rotary = self.queries(x, turns)
        q = torch.cat([plain, rotary], dim=-1)
        k, v = self.expanded(self.latents(x, turns))
        return q, k, functional.pad(v, (0, k.shape[-1] - v.shape[-1]))

    def merge(self, x: Tensor) -> Tensor:
        """Return [batch, time, hidden] for the heads' results [batch, heads, time, value_dim or padded]."""
        y: Tensor = self.o_proj(x[..., : self.shape.value_dim].transpose(1, 2).flatten(2))
        return y

    def decoded(self, x: Tensor, turns: Tensor, cache: Tensor) -> Tensor:
        """Attend from x [batch, 1, width] to cached latents [batch, slots, latent + rotary].

        Each head's share of `kv_b_proj` is applied to its query and its result instead of to all latents.
        """
        plain, rotary = self.queries(x, turns)
        weight = self.kv_b_proj.weight.unflatten(0, (self.shape.heads, -1)).to(plain.dtype)
        to_key, to_value = weight.split([self.shape.nope_dim, self.shape.value_dim], dim=1)
        absorbed = torch.einsum("bhtn,hnl->bhtl", plain, to_key)
        q = torch.cat([absorbed, rotary.to(absorbed.dtype)], dim=-1).squeeze(2)
        scale = (self.shape.nope_dim + self.shape.head_dim) ** -0.5
        share = torch.softmax((q @ cache.transpose(1, 2)).float() * scale, dim=-1).to(cache.dtype)
        mixed = share @ cache[..., : self.shape.latent]
        return self.merge(torch.einsum("bhl,hvl->bhv", mixed, to_value)[:, :, None])
