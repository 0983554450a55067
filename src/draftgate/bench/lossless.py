"""Losslessness: greedy text with a drafter must be the text without it, token by token."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftgate.client.completion import CompletionRecord

# Verification computes K+1 positions in one matrix product where plain decoding computes one, so sums may be
# added up in another order. In float32 (relative precision 6e-8) a few layers of that move a logit of size 10
# by some 1e-5: 1e-3 leaves room for a hundred times more. A wrong token hardly ever hides below it: the
# bundled target left less than 0.1 between its first two choices at 6 % of 3,170 greedy positions, less
# than 1e-3 at none.
TIE_NATS = 1e-3
# bfloat16 has 8 significant bits: between 8 and 16, where logits lie, neighbours are 1/16 apart. This is two.
HALF_TIE_NATS = 0.125


def tie_nats(dtype: str) -> float:
    """Where a rounding tie ends for a target of this type, as a profile states it.

    What "auto" comes to is in config.json; of the types that engines serve in, only float32 is finer.
    """
    return TIE_NATS if dtype == "float32" else HALF_TIE_NATS


Asker = Callable[[Sequence[int]], dict[int, float]]


class Outcome(enum.StrEnum):
    """EQUAL and TIE are lossless."""

    EQUAL = "equal"
    TIE = "tie"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Comparison:
    """One prompt's two answers.

    Attributes:
        index: of the first token that differs; None where all are equal, or only texts could be compared.
        plain, speculative: the token ids there; None where that answer had already ended.
        gap: log-probability of the plain token less that of the speculative one, in nats, by the plain
            engine. Where the speculative token is not among the likeliest it is at least this.
    """

    prompt_id: str
    outcome: Outcome
    index: int | None = None
    plain: int | None = None
    speculative: int | None = None
    gap: float | None = None
    note: str | None = None

    @property
    def lossless(self) -> bool:
        return self.outcome in (Outcome.EQUAL, Outcome.TIE)

    def line(self) -> str:
        """One line for a person."""
        if self.outcome is Outcome.EQUAL:
            return f"{self.prompt_id}: equal"
        parts = [f"{self.prompt_id}: {self.outcome}"]
        if self.index is not None:
            parts.append(f"at token {self.index} (plain {self.plain}, with drafter {self.speculative})")
        if self.gap is not None:
            parts.append(f"logit gap {self.gap:.2e} nats")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which ``a`` and ``b`` differ; the shorter one's end counts as a difference."""
    for index, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def compare(
    plain: CompletionRecord, speculative: CompletionRecord, ask: Asker, tie: float = TIE_NATS
) -> Comparison:
    """Compare two answers to one prompt.

    Args:
        ask: the plain engine's log-probabilities of the next token after these token ids.
        tie: nats below which two tokens are a rounding tie; goes by the type that the engine computes in.

    Raises:
        whatever ``ask`` raises.
    """
    name = plain.prompt_id
    if plain.error or speculative.error:
        return Comparison(name, Outcome.UNKNOWN, note="a request failed")
    if plain.token_ids is None or speculative.token_ids is None:
        equal = (plain.text, plain.reasoning) == (speculative.text, speculative.reasoning)
        note = "compared as text: the engine sends no token ids"
        return Comparison(name, Outcome.EQUAL if equal else Outcome.DIFFERENT, note=note)
    if plain.prompt_token_ids is None or plain.prompt_token_ids != speculative.prompt_token_ids:
        return Comparison(name, Outcome.UNKNOWN, note="the two engines did not see the same prompt tokens")
    index = first_difference(plain.token_ids, speculative.token_ids)
    if index is None:
        return Comparison(name, Outcome.EQUAL)
    ours = plain.token_ids[index] if index < len(plain.token_ids) else None
    theirs = speculative.token_ids[index] if index < len(speculative.token_ids) else None
    if ours is None or theirs is None:
        return Comparison(name, Outcome.DIFFERENT, index, ours, theirs, note="one answer ends there")
    likeliest = ask((*plain.prompt_token_ids, *plain.token_ids[:index]))
    outcome, gap = judge(likeliest, ours, theirs, tie)
    return Comparison(name, outcome, index, ours, theirs, gap)


def judge(
    likeliest: dict[int, float], plain: int, speculative: int, tie: float = TIE_NATS
) -> tuple[Outcome, float | None]:
    """Whether two tokens are a rounding tie for the first place, and their gap in nats.

    A tie needs both tokens within ``tie`` of the best: two unlikely tokens of equal probability are none.
    """
    if not likeliest or plain not in likeliest:
        return Outcome.DIFFERENT, None
    best, floor = max(likeliest.values()), min(likeliest.values())
    gap = likeliest[plain] - likeliest.get(speculative, floor)
    near = all(best - likeliest.get(token, float("-inf")) < tie for token in (plain, speculative))
    return (Outcome.TIE if near else Outcome.DIFFERENT), gap


def compare_all(
    plain: Sequence[CompletionRecord],
    speculative: Sequence[CompletionRecord],
    ask: Asker,
    tie: float = TIE_NATS,
) -> tuple[Comparison, ...]:
    """Compare two runs of one workload, request by request.

    Raises:
        ValueError: the runs did not ask the same prompts in the same order.
    """
    if [record.prompt_id for record in plain] != [record.prompt_id for record in speculative]:
        raise ValueError("the two runs asked different prompts")
    return tuple(compare(one, other, ask, tie) for one, other in zip(plain, speculative, strict=True))


@dataclass(frozen=True)
class Losslessness:
    """The sum over a workload; ``lossless`` needs at least one answer, and every one equal or a tie."""

    comparisons: tuple[Comparison, ...]

    @property
    def lossless(self) -> bool:
        return bool(self.comparisons) and all(comparison.lossless for comparison in self.comparisons)

    def counts(self) -> dict[Outcome, int]:
        found = Counter(comparison.outcome for comparison in self.comparisons)
        return {outcome: found[outcome] for outcome in Outcome}
