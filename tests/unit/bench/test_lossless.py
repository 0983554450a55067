from __future__ import annotations

from collections.abc import Sequence

import pytest

from draftgate.bench.lossless import (
    HALF_TIE_NATS,
    TIE_NATS,
    Comparison,
    Losslessness,
    Outcome,
    compare,
    compare_all,
    first_difference,
    judge,
    tie_nats,
)

from .conftest import Make


class Engine:
    """A plain engine that answers with fixed log-probabilities and remembers what it was asked."""

    def __init__(self, answer: dict[int, float]) -> None:
        self.answer = answer
        self.asked: list[Sequence[int]] = []

    def __call__(self, prefix: Sequence[int]) -> dict[int, float]:
        self.asked.append(prefix)
        return self.answer


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [
        ((), (), None),
        ((1, 2), (1, 2), None),
        ((1, 2), (1, 3), 1),
        ((1, 2), (1,), 1),
        ((), (1,), 0),
        ((4,), (5, 6), 0),
    ],
)
def test_first_difference(a: tuple[int, ...], b: tuple[int, ...], index: int | None) -> None:
    assert first_difference(a, b) == index
    assert first_difference(b, a) == index


def test_equal_answers_ask_nothing(make: Make) -> None:
    engine = Engine({})
    assert compare(make(), make(), engine) == Comparison("p", Outcome.EQUAL)
    assert engine.asked == []


def test_the_first_difference_is_judged_on_the_exact_prefix(make: Make) -> None:
    engine = Engine({7: -0.7, 9: -0.7004, 3: -5.0})
    result = compare(make(token_ids=(5, 6, 7, 8)), make(token_ids=(5, 6, 9, 1)), engine)
    assert engine.asked == [(1, 2, 5, 6)]  # the prompt's ids, then the common part
    assert result == Comparison("p", Outcome.TIE, 2, 7, 9, result.gap)
    assert result.gap == pytest.approx(0.0004)
    assert result.line() == "p: tie, at token 2 (plain 7, with drafter 9), logit gap 4.00e-04 nats"
    assert result.lossless


@pytest.mark.parametrize(
    ("likeliest", "outcome", "gap"),
    [
        ({7: -0.5, 9: -0.5 - 2 * TIE_NATS}, Outcome.DIFFERENT, 2 * TIE_NATS),
        ({9: -0.5, 7: -0.5 - TIE_NATS / 2}, Outcome.TIE, -TIE_NATS / 2),
        # Both far from the best: equal to each other, but no greedy choice.
        ({1: -0.1, 7: -4.0, 9: -4.0}, Outcome.DIFFERENT, 0.0),
        # Not among the likeliest: the gap is a lower bound.
        ({7: -0.5, 3: -6.0}, Outcome.DIFFERENT, 5.5),
        ({3: -0.5}, Outcome.DIFFERENT, None),
        ({}, Outcome.DIFFERENT, None),
    ],
)
def test_judge(likeliest: dict[int, float], outcome: Outcome, gap: float | None) -> None:
    assert judge(likeliest, plain=7, speculative=9) == (outcome, gap if gap is None else pytest.approx(gap))


@pytest.mark.parametrize(
    ("dtype", "gap", "outcome"),
    [
        ("float32", 2 * TIE_NATS, Outcome.DIFFERENT),
        ("bfloat16", 2 * TIE_NATS, Outcome.TIE),
        ("auto", 0.9 * HALF_TIE_NATS, Outcome.TIE),
        ("auto", 1.1 * HALF_TIE_NATS, Outcome.DIFFERENT),
    ],
)
def test_a_coarser_type_has_wider_ties(dtype: str, gap: float, outcome: Outcome) -> None:
    assert judge({7: -0.5, 9: -0.5 - gap}, 7, 9, tie_nats(dtype))[0] is outcome


def test_an_early_end_is_no_tie(make: Make) -> None:
    engine = Engine({})
    result = compare(make(token_ids=(5, 6)), make(token_ids=(5,)), engine)
    assert (result.outcome, result.index, result.plain, result.speculative) == (Outcome.DIFFERENT, 1, 6, None)
    assert engine.asked == []


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"error": "HTTP 500"}, "a request failed"),
        ({"prompt_token_ids": (1, 3)}, "the two engines did not see the same prompt tokens"),
    ],
)
def test_what_cannot_be_compared_is_not_lossless(make: Make, change: dict[str, object], note: str) -> None:
    result = compare(make(), make(**change), Engine({}))
    assert result == Comparison("p", Outcome.UNKNOWN, note=note)
    assert not result.lossless


@pytest.mark.parametrize(("text", "outcome"), [("a", Outcome.EQUAL), ("b", Outcome.DIFFERENT)])
def test_without_token_ids_the_texts_are_compared(make: Make, text: str, outcome: Outcome) -> None:
    result = compare(make(text="a", token_ids=None), make(text=text), Engine({}))
    assert (result.outcome, result.note) == (outcome, "compared as text: the engine sends no token ids")


def test_a_workload_is_lossless_when_every_answer_is(make: Make) -> None:
    tie = Engine({7: -0.7, 9: -0.7})
    plain = (make(), make(token_ids=(7,)))
    whole = Losslessness(compare_all(plain, (make(), make(token_ids=(9,))), tie))
    assert whole.lossless
    assert whole.counts() == {Outcome.EQUAL: 1, Outcome.TIE: 1, Outcome.DIFFERENT: 0, Outcome.UNKNOWN: 0}
    assert not Losslessness(compare_all(plain, (make(), make(token_ids=())), tie)).lossless
    assert not Losslessness(()).lossless


def test_two_workloads_cannot_be_compared(make: Make) -> None:
    with pytest.raises(ValueError, match="different prompts"):
        compare_all((make(),), (make(prompt_id="q"),), Engine({}))
