"""The target: a small Llama, and its training on the library's sources."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from .layers import Mlp, Norm, Projections, rotary
from .settings import Shape
from .vocabulary import BOS_ID


class Block(nn.Module):
    """One pre-norm Llama layer."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.input_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.self_attn = Projections(shape, shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.mlp = Mlp(shape.hidden, shape.target_mlp)
        self.dropout = dropout

    def forward(self, x: Tensor, turns: Tensor, cache: Tensor | None, start: int) -> Tensor:
        """Apply it to x [batch, time, hidden]; `cache` is this layer's [2, batch, heads, slots, head_dim]."""
        q, k, v = self.self_attn.split(self.input_layernorm(x), turns)
        if cache is not None:
            end = start + k.shape[2]
            cache[0, :, :, start:end], cache[1, :, :, start:end] = k, v
            k, v = cache[0, :, :, :end], cache[1, :, :, :end]
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        x = x + functional.dropout(self.self_attn.merge(mixed), self.dropout, self.training)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + functional.dropout(y, self.dropout, self.training)


class Trunk(nn.Module):
    """Embeddings, layers and final norm; a module of its own only for the tensor names."""

    def __init__(self, shape: Shape, layers: list[nn.Module]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(layers)
        self.norm = Norm(shape.hidden, eps=shape.rms_eps)


class Target(nn.Module):
    """LlamaForCausalLM, with an untied output head."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape, [self.layer(number, dropout) for number in range(shape.layers)])
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)

    def layer(self, number: int, dropout: float) -> nn.Module:
        """Make one layer; other architectures make others."""
        return Block(self.shape, dropout)

    def cache(self, batch: int, slots: int, device: torch.device) -> Tensor:
        """Return an empty cache of keys and values, [layers, 2, batch, heads, slots, head_dim]."""
        shape = self.shape
        return torch.empty((shape.layers, 2, batch, shape.heads, slots, shape.head_dim), device=device)

    def forward(self, tokens: Tensor, cache: Tensor | None = None, start: int = 0) -> tuple[Tensor, Tensor]:
        """Return logits [batch, time, vocab] and aux states [batch, time, 3 * hidden] of ids [batch, time].

        The aux states are the residual streams that enter `Shape.aux_layers`, side by side, un-normed. With a
        cache, tokens stand at `start`; several at once only at 0.
        """
        turns = rotary(self.shape, start, tokens.shape[1], tokens.device)
        x = self.model.embed_tokens(tokens)
        states = []
        for number, layer in enumerate(self.model.layers):
            if number in self.shape.aux_layers:
                states.append(x)
            x = layer(x, turns, None if cache is None else cache[number], start)
        return self.lm_head(self.model.norm(x)), torch.cat(states, dim=-1)


class Windows:
    """Random training windows: BOS, then text from a line start on, as a request would hold it."""

    def __init__(self, ids: NDArray[np.uint16], starts: NDArray[np.int64], device: torch.device) -> None:
        self.ids = torch.from_numpy(ids.astype(np.int64)).to(device)
        self.starts = torch.from_numpy(starts).to(device)

    def draw(self, batch: int, length: int, seed: int) -> Tensor:
        """Return [batch, length] ids; the seed alone decides which, so a resumed run draws the same."""
        starts = self.starts[self.starts <= len(self.ids) - length + 1]
        picks = torch.randint(len(starts), (batch,), generator=torch.Generator().manual_seed(seed))
        offsets = torch.arange(length - 1, device=self.ids.device)
        text = self.ids[starts[picks.to(starts.device)][:, None] + offsets]
        return functional.pad(text, (1, 0), value=BOS_ID)


def language_loss(target: Target, tokens: Tensor) -> Tensor:
    """Return the mean cross-entropy of the next token, in nats, over tokens [batch, time]."""
    logits, _ = target(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(target: Target, windows: Windows, length: int) -> float:
    """Return the loss on 128 windows of held-out text, in nats a token."""
    target.eval()
    losses = [language_loss(target, windows.draw(16, length, seed)).item() for seed in range(8)]
    return float(np.mean(losses))
