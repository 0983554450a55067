"""Definitions on exact made-up timelines; each trap was somebody's published number."""

from __future__ import annotations

import json

import pytest

from draftgate.bench.load import Load
from draftgate.bench.measure import Spread, distinct_bigram_ratio, e2e, measure, spread, tpot, ttft
from draftgate.client.completion import Answer

from .conftest import Make


def chunk(text: str, tokens: list[int], finish: str | None = None, **delta: str) -> str:
    choice = {"delta": {"content": text, **delta}, "token_ids": tokens, "finish_reason": finish}
    return json.dumps({"choices": [choice]})


USAGE_17 = json.dumps({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 17}})


def test_several_tokens_in_a_chunk_do_not_inflate_tpot() -> None:
    # 17 tokens in 5 chunks: the first alone, then 4 at a time every 0.4 s. A gap between chunks is
    # 0.4 s; a token takes 0.1 s. vLLM issue 51454 showed the former as the latter: "5.4x" slower than it was.
    answer = Answer("p", sent=10.0)
    answer.take(10.5, chunk("", []))  # the role, no token
    answer.take(11.0, chunk("a", [0]))
    for step in range(4):
        finish = "length" if step == 3 else None
        answer.take(11.0 + 0.4 * (step + 1), chunk("bcde", [1, 2, 3, 4], finish))
    answer.take(12.7, USAGE_17)  # 0.1 s after the last token; belongs to no figure
    answer.take(12.7, "[DONE]")
    record = answer.record(12.9)
    assert record.error is None
    assert (ttft(record), record.chunks) == (1.0, 5)
    assert e2e(record) == pytest.approx(2.6)
    assert tpot(record) == pytest.approx(0.1)


def test_ttft_is_the_first_token_even_if_it_is_reasoning() -> None:
    answer = Answer("p", sent=0.0)
    answer.take(1.0, chunk("", [7], reasoning="hm"))
    answer.take(5.0, chunk("x", list(range(16)), "stop"))
    answer.take(5.0, USAGE_17)
    answer.take(5.0, "[DONE]")
    record = answer.record(5.0)
    assert (ttft(record), record.first_answer, tpot(record)) == (1.0, 5.0, 0.25)


def test_a_token_without_text_is_a_token() -> None:
    # Half a character, or the end token alone, arrives as token ids with an empty text.
    answer = Answer("p", sent=0.0)
    answer.take(1.0, chunk("", [7]))
    answer.take(2.0, chunk("é", [8], "stop"))
    record = answer.record(3.0)
    assert (record.first, record.last, record.chunks) == (1.0, 2.0, 2)


def test_the_first_token_is_no_part_of_tpot(make: Make) -> None:
    # vLLM issue 7242 and SGLang issue 1005 had TTFT among the gaps.
    assert tpot(make(sent=0, first=100.0, last=101.6, completion_tokens=17)) == pytest.approx(0.1)


@pytest.mark.parametrize("tokens", [None, 0, 1])
def test_tpot_of_less_than_two_tokens_is_undefined(make: Make, tokens: int | None) -> None:
    assert tpot(make(completion_tokens=tokens)) is None


def test_unset_times_give_none_and_never_a_negative(make: Make) -> None:
    # guidellm issue 216 printed negative times; vLLM issue 12389 zeros.
    record = make(first=None, first_answer=None, last=None)
    assert (ttft(record), e2e(record), tpot(record)) == (None, None, None)


def test_a_failed_request_has_no_figures(make: Make) -> None:
    record = make(error="HTTP 500")
    assert (ttft(record), e2e(record), tpot(record)) == (None, None, None)


def test_a_percentile_needs_as_many_values() -> None:
    assert spread([None]) is None
    assert spread([1.0, 3.0, None]) == Spread(count=2, mean=2.0, p50=2.0, p90=None, p99=None)
    ten = spread(float(n) for n in range(11))
    assert ten == Spread(11, 5.0, 5.0, 9.0, None)
    hundred = spread(float(n) for n in range(101))
    assert hundred is not None
    assert hundred.p99 == pytest.approx(99.0)


def test_throughput_is_tokens_over_the_whole_window(make: Make) -> None:
    load = Load((make(), make(sent=3.5, closed=10.0), make(error="x", completion_tokens=5)), 0.0, 10.0, 0.1)
    figures = measure(load)
    assert (figures.completed, figures.failed) == (2, 1)
    assert (figures.completion_tokens, figures.tokens_per_second) == (34, 3.4)
    # 3.5 s, 6.5 s and the failed one's 3.5 s in a window of 10 s.
    assert figures.in_flight == pytest.approx(1.35)


def test_nothing_measured_is_none_and_not_zero() -> None:
    figures = measure(Load((), 5.0, 5.0, 0.0))
    assert (figures.tokens_per_second, figures.in_flight, figures.ttft, figures.distinct_bigram_ratio) == (
        None,
    ) * 4


@pytest.mark.parametrize(
    ("ids", "ratio"),
    [([], None), ([4], None), ([4, 5], 1.0), ([4, 4, 4, 4, 4], 0.25), ([1, 2, 1, 2, 1], 0.5)],
)
def test_distinct_bigrams(ids: list[int], ratio: float | None) -> None:
    assert distinct_bigram_ratio(ids) == ratio


def test_loops_are_counted_per_answer_and_averaged(make: Make) -> None:
    # Pooled over all answers the loop of one would vanish among the others.
    load = Load((make(), make(token_ids=(4,) * 17)), 0.0, 1.0, 0.0)
    figures = measure(load)
    assert figures.distinct_bigram_ratio == pytest.approx((1 + 1 / 16) / 2)
    assert figures.looping == 1


def test_without_token_ids_loops_are_unknown(make: Make) -> None:
    assert measure(Load((make(token_ids=None),), 0.0, 1.0, 0.0)).looping is None
