"""DeepSeek-V3's mixture of experts: sigmoid routing with a bias that only selects (`noaux_tc`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tools.tinymodel.layers import Mlp

from .settings import KimiShape

# By how much the bias of an expert moves after each step, to even their load (arXiv 2408.15664).
BIAS_SPEED = 1e-3


class Router(nn.Module):
    """Chooses the experts of a token and weighs them, in float32."""

    e_score_correction_bias: Tensor

    def __init__(self, shape: KimiShape) -> None:
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.zeros(shape.experts, shape.hidden))
        self.register_buffer("e_score_correction_bias", torch.zeros(shape.experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return each expert's weight for x [..., hidden], [..., experts]; 0 where it is not chosen."""
        with torch.autocast(x.device.type, enabled=False):
            scores = functional.linear(x.float(), self.weight.float()).sigmoid()
        wanted = (scores + self.e_score_correction_bias).topk(self.shape.experts_per_token).indices
        chosen = torch.zeros_like(scores).scatter(-1, wanted, 1.0)
        if self.training:
            self.even_out(chosen)
        scores = scores * chosen
        return scores / (scores.sum(-1, keepdim=True) + 1e-20) * self.shape.routed_scaling

    @torch.no_grad()
    def even_out(self, chosen: Tensor) -> None:
        """Make experts that got less than their share likelier, the others less likely."""
        load = chosen.flatten(0, -2).mean(0)
        self.e_score_correction_bias += BIAS_SPEED * (load.mean() - load).sign()


class Experts(nn.Module):
    """Routed experts and the shared one.

    All routed experts lie side by side in one wide MLP, of which each token sees a weighted part: more
    arithmetic than needed, in few and large matrix products. `checkpoint.py` cuts it into experts.
    """

    def __init__(self, shape: KimiShape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = Router(shape)
        self.experts = Mlp(shape.hidden, shape.experts * shape.expert_mlp)
        self.shared_experts = Mlp(shape.hidden, shape.shared_experts * shape.expert_mlp)

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to x [..., hidden]."""
        weights = self.gate(x)
        inner = functional.silu(self.experts.gate_proj(x)) * self.experts.up_proj(x)
        inner = inner.unflatten(-1, (self.shape.experts, -1)) * weights[..., None].to(inner.dtype)
        y: Tensor = self.experts.down_proj(inner.flatten(-2)) + self.shared_experts(x)
        return y
