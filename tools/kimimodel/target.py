"""The target: a small DeepseekV3ForCausalLM, trained by `tools.tinymodel`'s loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tinymodel.layers import Mlp, Norm
from tools.tinymodel.target import Target

from .attention import LatentAttention
from .experts import Experts
from .settings import KimiShape


class Block(nn.Module):
    """One pre-norm layer, with a dense MLP or experts."""

    def __init__(self, shape: KimiShape, number: int, dropout: float) -> None:
        super().__init__()
        dense = number < shape.dense_layers
        self.input_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.self_attn = LatentAttention(shape, shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.mlp = Mlp(shape.hidden, shape.target_mlp) if dense else Experts(shape)
        self.dropout = dropout

    def forward(self, x: Tensor, turns: Tensor, cache: Tensor | None, start: int) -> Tensor:
        """Apply it to x [batch, time, hidden]; `cache` is this layer's [batch, slots, latent + rotary]."""
        y = self.input_layernorm(x)
        x = x + functional.dropout(self.attended(y, turns, cache, start), self.dropout, self.training)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + functional.dropout(y, self.dropout, self.training)

    def attended(self, x: Tensor, turns: Tensor, cache: Tensor | None, start: int) -> Tensor:
        """Return the attention's result, [batch, time, hidden]."""
        end = start + x.shape[1]
        if cache is not None:
            cache[:, start:end] = self.self_attn.latents(x, turns)
        if start > 0 and cache is not None:
            return self.self_attn.decoded(x, turns, cache[:, :end])
        q, k, v = self.self_attn.split(x, turns)
        return self.self_attn.merge(functional.scaled_dot_product_attention(q, k, v, is_causal=True))


class KimiTarget(Target):
    """DeepseekV3ForCausalLM, with an untied output head."""

    shape: KimiShape

    def layer(self, number: int, dropout: float) -> nn.Module:
        """Make layer `number`."""
        return Block(self.shape, number, dropout)

    def cache(self, batch: int, slots: int, device: torch.device) -> Tensor:
        """Return an empty cache [layers, batch, slots, latent + rotary], in the type of products."""
        shape = self.shape
        half = torch.is_autocast_enabled(device.type)
        dtype = torch.get_autocast_dtype(device.type) if half else torch.float32
        width = shape.latent + shape.head_dim
        return torch.empty((shape.layers, batch, slots, width), device=device, dtype=dtype)
