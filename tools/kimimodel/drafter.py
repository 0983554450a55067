"""The MLA drafter, and its training on what the quantised target was seen to compute."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tools.tinymodel.drafter import Drafter, recorded_loss

from .attention import LatentAttention
from .settings import KimiShape
from .target import KimiTarget

AT_ONCE = 64


class MlaDrafter(Drafter):
    """Eagle3DeepseekV2ForCausalLM without embeddings of its own."""

    def attention(self, shape: KimiShape) -> nn.Module:
        """Make the attention of [embedding; feature]."""
        return LatentAttention(shape, 2 * shape.hidden)


@dataclass(frozen=True)
class Record:
    """What the target gave for all texts [texts, time], in bfloat16: both drafters are trained on it."""

    texts: Tensor
    lengths: Tensor
    logits: Tensor
    aux: Tensor
    embeddings: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, target: KimiTarget, texts: Tensor, lengths: Tensor) -> Record:
        """Run the target over texts [texts, time] of which the first `lengths` were given."""
        seen = [tuple(part.bfloat16() for part in target(rows)) for rows in texts.split(AT_ONCE)]
        logits, aux = (torch.cat(parts) for parts in zip(*seen, strict=True))
        return cls(texts, lengths, logits, aux, target.model.embed_tokens.weight.detach())

    def loss(self, drafter: Drafter, rows: Tensor, steps: int) -> Tensor:
        """Return the drafter's loss on these texts."""
        tokens = self.texts[rows]
        embedded = self.embeddings[tokens[:, 1:]]
        return recorded_loss(
            drafter, self.logits[rows], self.aux[rows].float(), embedded, tokens, self.lengths[rows], steps
        )
