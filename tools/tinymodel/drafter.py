"""The EAGLE-3 drafter (arXiv 2503.01840) and its training with training-time test.

Row t of the drafter holds the target's feature of token t and the embedding of token t + 1, stands at rotary
position t, and predicts token t + 2. Draft step 0 takes fc(aux states); step k > 0 takes, at row t, the
un-normed state that step k - 1 gave at row t - 1, as the engines do.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layers import Mlp, Norm, Projections, rotary
from .settings import Shape
from .target import Target
from .vocabulary import EOS_ID

# The paper's weight for the loss of draft step k is 0.8 ** k.
STEP_DECAY = 0.8


def delayed(x: Tensor, rows: int, dim: int) -> Tensor:
    """Shift x along `dim`, so that row t holds what row t - rows held; zeros come in."""
    if rows == 0:
        return x
    empty = torch.zeros_like(x.narrow(dim, 0, rows))
    return torch.cat([empty, x.narrow(dim, 0, x.shape[dim] - rows)], dim)


class MidLayer(nn.Module):
    """The one decoder layer; its attention reads [embedding; feature], both normed."""

    def __init__(self, shape: Shape, attention: nn.Module) -> None:
        super().__init__()
        self.hidden_norm = Norm(shape.hidden, eps=shape.rms_eps)
        self.input_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.self_attn = attention
        self.post_attention_layernorm = Norm(shape.hidden, eps=shape.rms_eps)
        self.mlp = Mlp(shape.hidden, shape.drafter_mlp)

    def forward(
        self, embedded: Tensor, features: Tensor, turns: Tensor, past: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Return one draft step's un-normed states [batch, rows, hidden]; keys and values join `past`."""
        joined = torch.cat([self.input_layernorm(embedded), self.hidden_norm(features)], dim=-1)
        q, k, v = self.self_attn.split(joined, turns)
        past.append((k, v))
        x = features + self.self_attn.merge(attended(q, past))
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


def attended(q: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attend from the newest draft step; q and each of `past` are [batch, heads, rows, head_dim].

    A chain that reached row t in step k started from features up to row t - k; in the rows after, its cache
    holds what steps 1 ... k wrote there. So each query sees step 0 up to row t - k and one key of each later
    step: the training-time test of the EAGLE-3 paper, section 3.2.
    """
    step = len(past) - 1
    if step == 0:
        return functional.scaled_dot_product_attention(q, *past[0], is_causal=True)
    rows = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
    # Key number n at row s serves the query at row s + step - n; of step 0 all rows up to there.
    allowed = [rows.tril(-step)] + [rows.tril(n - step).triu(n - step) for n in range(1, step + 1)]
    return functional.scaled_dot_product_attention(
        q,
        torch.cat([k for k, _ in past], dim=2),
        torch.cat([v for _, v in past], dim=2),
        attn_mask=torch.cat(allowed, dim=1),
    )


class Drafter(nn.Module):
    """LlamaForCausalLMEagle3 without embeddings of its own; state dict keys are the checkpoint's names."""

    d2t: Tensor
    t2d: Tensor

    def __init__(self, shape: Shape, kept: Tensor) -> None:
        """`kept` are the target ids of the draft vocabulary, ascending, int64 [draft_vocab]."""
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.aux_layers) * shape.hidden, shape.hidden, bias=False)
        self.midlayer = MidLayer(shape, self.attention(shape))
        self.norm = Norm(shape.hidden, eps=shape.rms_eps)
        self.lm_head = nn.Linear(shape.hidden, shape.draft_vocab, bias=False)
        self.register_buffer("d2t", kept - torch.arange(shape.draft_vocab))
        self.register_buffer("t2d", torch.zeros(shape.vocab, dtype=torch.bool).index_fill(0, kept, True))

    def attention(self, shape: Shape) -> nn.Module:
        """Make the attention of [embedding; feature]; other architectures make others."""
        return Projections(shape, 2 * shape.hidden)

    @property
    def kept(self) -> Tensor:
        """The target id of each draft id, [draft_vocab]: the stored table holds offsets."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def unroll(self, embedded: Tensor, aux: Tensor, steps: int) -> list[Tensor]:
        """Return draft logits [batch, rows, draft_vocab] of each draft step.

        `embedded` [batch, rows, hidden] are the target's embeddings of tokens 1 ..., `aux` [batch, rows,
        3 * hidden] its states at tokens 0 .... In step k, rows below k belong to no chain and mean nothing.
        """
        turns = rotary(self.shape, 0, aux.shape[1], aux.device)
        past: list[tuple[Tensor, Tensor]] = []
        features, logits = self.fc(aux), []
        for _ in range(steps):
            states = self.midlayer(embedded, features, turns, past)
            logits.append(self.lm_head(self.norm(states)))
            features = delayed(states, 1, 1)
        return logits


def draft_vocabulary(texts: Tensor, prompt_lengths: Tensor, shape: Shape) -> Tensor:
    """Return the most frequent generated ids, ascending, [draft_vocab]."""
    counts = torch.bincount(texts[generated(texts, prompt_lengths)], minlength=shape.vocab)
    return counts.argsort(descending=True, stable=True)[: shape.draft_vocab].sort().values


def generated(texts: Tensor, prompt_lengths: Tensor) -> Tensor:
    """Mark the tokens of [batch, time] that the target chose itself, up to its first EOS: bool."""
    places = torch.arange(texts.shape[1], device=texts.device)
    chosen = places >= prompt_lengths[:, None]
    ended = ((texts == EOS_ID) & chosen).cumsum(1)
    return chosen & (ended - (texts == EOS_ID).long() <= 0)


def unrolled_loss(drafter: Drafter, target: Target, tokens: Tensor, lengths: Tensor, steps: int) -> Tensor:
    """Return the drafter's loss in nats: cross-entropy to the target's distribution, draft steps weighted.

    Only chains that start in generated text count, and rows whose most likely token the draft vocabulary can
    express (as in the paper's training code, the distribution is restricted to that vocabulary).
    """
    with torch.no_grad(), torch.autocast(tokens.device.type, enabled=False):
        logits, aux = target(tokens)
        embedded = target.model.embed_tokens(tokens[:, 1:])
    return recorded_loss(drafter, logits, aux, embedded, tokens, lengths, steps)


def recorded_loss(
    drafter: Drafter,
    logits: Tensor,
    aux: Tensor,
    embedded: Tensor,
    tokens: Tensor,
    lengths: Tensor,
    steps: int,
) -> Tensor:
    """Return `unrolled_loss` from what the target gave for tokens, and its embeddings of tokens 1 ...."""
    with torch.no_grad():
        wanted = logits[:, 1:]
        usable = drafter.t2d[wanted.argmax(-1)]
        share = wanted[..., drafter.kept].float().softmax(-1)
        chosen = generated(tokens, lengths)
    total = torch.zeros((), device=tokens.device)
    for step, drafted in enumerate(drafter.unroll(embedded, aux[:, :-1], steps)):
        # The chain that is at row t in step k began at row t - k, with the chosen token t - k + 1.
        mask = usable & chosen[:, 1:] & delayed(chosen[:, 1:], step, 1)
        entropy = -(share * drafted.float().log_softmax(-1)).sum(-1)
        total = total + STEP_DECAY**step * (entropy * mask).sum() / mask.sum().clamp(min=1)
    return total / sum(STEP_DECAY**step for step in range(steps))
