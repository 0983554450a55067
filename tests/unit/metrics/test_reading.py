"""What the fixtures say, and what damaged, multi-rank and foreign expositions come to."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest

from draftgate.metrics.exposition import MAX_LINE, decode
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.reading import read
from draftgate.metrics.rules import RULES, Dialect, Quantity, release, rules_for
from draftgate.metrics.sample import AcceptanceWindow, EngineSample, Histogram, SpeculationCounters
from tests.standin.expositions import SGLANG_LLAMA, SGLANG_MLA, VLLM, copied, edited, exposition, without

VLLM_RULES = rules_for(Dialect.VLLM, "0.32.0")
SGLANG_RULES = rules_for(Dialect.SGLANG, "0.5.16")


def sample(text: str, dialect: Dialect = Dialect.VLLM) -> EngineSample:
    found = read(text, VLLM_RULES if dialect is Dialect.VLLM else SGLANG_RULES)
    assert found is not None
    return found


def fault(text: str | bytes, dialect: Dialect = Dialect.VLLM) -> Fault:
    body = text.encode() if isinstance(text, str) else text
    with pytest.raises(UnusableAnswer) as caught:
        read(decode(body), VLLM_RULES if dialect is Dialect.VLLM else SGLANG_RULES)
    return caught.value.fault


def histogram(bounds: str, counts: tuple[int, ...], total: float) -> Histogram:
    numbers = [float(bound) for bound in bounds.split()] + [math.inf]
    filled = counts + counts[-1:] * (len(numbers) - len(counts))
    return Histogram(tuple(zip(numbers, map(float, filled), strict=True)), total)


_SGLANG_TTFT = ".1 .2 .4 .6 .8 1 2 4 6 8 10 20 40 60 80 100 200 400"
_SGLANG_ITL = ".002 .004 .006 .008 .01 .015 .02 .025 .03 .035 .04 .06 .08 .1 .2 .4 .6 .8 1 2 4 6 8"


def test_vllm_fixture_whole() -> None:
    assert sample(exposition(VLLM)) == EngineSample(
        speculation=SpeculationCounters(297.0, 891.0, 0.0, (0.0, 0.0, 0.0)),
        generated_tokens=300.0,
        prompt_tokens=7.0,
        running=0.0,
        waiting=0.0,
        kv_usage=0.0,
        prefix_hits=0.0,
        prefix_queries=7.0,
        preemptions=0.0,
        ttft=histogram(
            ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560",
            (0, 0, 0, 2, 3),
            0.04855656623840332,
        ),
        time_per_output_token=histogram(
            ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80", (3,), 0.02443822533331688
        ),
    )


@pytest.mark.parametrize(
    ("name", "ttft", "per_token"),
    [
        (
            SGLANG_LLAMA,
            histogram(_SGLANG_TTFT, (0, 2, 3), 0.531917505000024),
            histogram(_SGLANG_ITL, (0, 800), 2.4873860730000388),
        ),
        (
            SGLANG_MLA,
            histogram(_SGLANG_TTFT, (0, 0, 2, 2, 2, 2, 2, 2, 3), 5.543821852999827),
            histogram(_SGLANG_ITL, (0, 0, 800), 3.812980416000073),
        ),
    ],
)
def test_sglang_fixtures_whole(name: str, ttft: Histogram, per_token: Histogram) -> None:
    assert sample(exposition(name), Dialect.SGLANG) == EngineSample(
        window=AcceptanceWindow(length=1.0, raw_rate=0.0, slots=4.0),
        verify_steps=905.0,
        finished_requests=3.0,
        generated_tokens=908.0,
        prompt_tokens=16.0,
        decode_tokens=909.0,
        prefill_tokens=17.0,
        running=0.0,
        waiting=0.0,
        kv_usage=0.0,
        ttft=ttft,
        time_per_output_token=per_token,
        throughput=0.0,
    )


def test_every_quantity_is_a_field_or_a_part_of_one() -> None:
    parts = {"drafts", "proposed", "accepted", "window_length", "window_rate", "window_slots"}
    assert {quantity.value for quantity in Quantity} - parts <= {field.name for field in fields(EngineSample)}
    assert all(rule.series.startswith(f"{rules.dialect}:") for rules in RULES for rule in rules.scalars)


@pytest.mark.parametrize(
    ("dialect", "version", "since"),
    [
        (Dialect.VLLM, "0.19.1", (0, 19, 1)),
        (Dialect.VLLM, "0.33.0", (0, 19, 1)),
        (Dialect.SGLANG, "0.4.0", (0, 5, 9)),
        (Dialect.SGLANG, "0.5.10.post1", (0, 5, 9)),
        (Dialect.SGLANG, "0.5.11", (0, 5, 11)),
        (Dialect.SGLANG, "0.5.12.post1", (0, 5, 11)),
        (Dialect.SGLANG, "0.5.13", (0, 5, 13)),
        (Dialect.SGLANG, "0.5.23", (0, 5, 13)),
        (Dialect.SGLANG, "main", (0, 5, 13)),
        (Dialect.SGLANG, None, (0, 5, 13)),
    ],
)
def test_rules_by_version(dialect: Dialect, version: str | None, since: tuple[int, ...]) -> None:
    assert rules_for(dialect, version).since == since


def test_release_of_a_version() -> None:
    assert release("0.5.10.post1") == (0, 5, 10)
    assert release("v0.33.0rc1+cu130") == (0, 33, 0)
    assert release("nightly") is None


def test_an_old_sglang_has_no_verify_counter() -> None:
    found = read(exposition(SGLANG_LLAMA), rules_for(Dialect.SGLANG, "0.5.10.post1"))
    assert found is not None
    assert found.verify_steps is None


def test_created_series_are_not_counted() -> None:
    text = exposition(VLLM)
    assert "vllm:spec_decode_num_drafts_created" in text
    assert sample(text) == sample(without(text, "vllm:spec_decode_num_drafts_created"))


def test_data_parallel_ranks_are_summed_and_shares_averaged() -> None:
    text = edited(exposition(VLLM), {"vllm:kv_cache_usage_perc": 0.5, "vllm:num_requests_running": 3})
    one = sample(text)
    for name in VLLM_RULES.wanted:
        text = copied(text, name, ('engine="0"', 'engine="1"'))
    two = sample(edited(text, {'vllm:kv_cache_usage_perc{engine="1"': 0.25}))
    assert two.speculation == SpeculationCounters(594.0, 1782.0, 0.0, (0.0, 0.0, 0.0))
    assert (two.generated_tokens, two.running, two.kv_usage) == (600.0, 6.0, 0.375)
    assert one.ttft is not None
    assert two.ttft == Histogram(tuple((b, 2 * n) for b, n in one.ttft.buckets), 2 * one.ttft.sum)


def _with_ranks(*ranks: dict[str, str]) -> str:
    """The Llama fixture with each scheduler series repeated for further ranks."""
    text = edited(exposition(SGLANG_LLAMA), {"sglang:num_running_reqs": 5, "sglang:token_usage": 0.5})
    scheduler = {rule.series for rule in SGLANG_RULES.scalars if rule.scheduler}
    for name in scheduler & {line.partition("{")[0] for line in text.splitlines()}:
        lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        for rank in ranks:
            for line in lines:
                changed = line
                for label, value in rank.items():
                    if f'{label}="0"' in line:
                        changed = changed.replace(f'{label}="0"', f'{label}="{value}"')
                    else:
                        changed = changed.replace("{", f'{{{label}="{value}",', 1)
                text += changed + "\n"
    return text


def test_schedulers_of_one_rank_say_the_same_and_count_once() -> None:
    tensor_parallel = _with_ranks(*({"tp_rank": str(i), "moe_ep_rank": str(i)} for i in range(1, 12)))
    found = sample(tensor_parallel, Dialect.SGLANG)
    assert (found.running, found.decode_tokens, found.kv_usage) == (5.0, 909.0, 0.5)
    found = sample(_with_ranks({"pp_rank": "1"}), Dialect.SGLANG)
    assert (found.running, found.decode_tokens) == (5.0, 909.0)


def test_the_lowest_rank_is_the_one_that_counts() -> None:
    line = 'sglang:num_running_reqs{{model_name="llama",tp_rank="{}"}} {}\n'
    text = without(exposition(SGLANG_LLAMA), "sglang:num_running_reqs")
    assert sample(text + line.format("10", 3) + line.format("2", 2), Dialect.SGLANG).running == 2.0


def test_data_parallel_attention_keeps_one_series_per_dp_rank() -> None:
    text = exposition(SGLANG_LLAMA).replace('tp_rank="0"}', 'tp_rank="0",dp_rank="0"}')
    lines = [line for line in text.splitlines() if 'dp_rank="0"' in line]
    text += "".join(
        line.replace('dp_rank="0"', 'dp_rank="1"').replace('tp_rank="0"', 'tp_rank="4"') + "\n"
        for line in lines
    )
    found = sample(text, Dialect.SGLANG)
    assert (found.decode_tokens, found.prefill_tokens) == (1818.0, 34.0)
    assert found.window == AcceptanceWindow(1.0, 0.0, 4.0)


def test_priorities_are_parts_of_their_total() -> None:
    text = exposition(SGLANG_LLAMA).replace('tp_rank="0"}', 'tp_rank="0",priority=""}')
    text = edited(text, {"sglang:num_running_reqs": 5})
    text += 'sglang:num_running_reqs{model_name="llama",tp_rank="0",priority="1"} 2\n'
    text += 'sglang:num_running_reqs{model_name="llama",tp_rank="0",priority="2"} 3\n'
    assert sample(text, Dialect.SGLANG).running == 5.0


def test_streaming_and_plain_requests_are_summed() -> None:
    text = exposition(SGLANG_LLAMA)
    tokenizer = [rule.series for rule in SGLANG_RULES.scalars if not rule.scheduler] + [
        "sglang:time_to_first_token_seconds"
    ]
    for line in text.splitlines():
        if line.startswith(tuple(tokenizer)) and "cached" not in line:
            text += line.replace("{", '{is_streaming="true",', 1) + "\n"
    found = sample(text, Dialect.SGLANG)
    assert (found.generated_tokens, found.prompt_tokens, found.finished_requests) == (1816.0, 32.0, 6.0)
    assert found.ttft is not None
    assert found.ttft.count == 6.0


def test_sglang_prefix_hits_bring_their_queries() -> None:
    text = exposition(SGLANG_LLAMA)
    for source, value in (("device", 5), ("host", 2)):
        text += f'sglang:cached_tokens_total{{cache_source="{source}",model_name="llama"}} {value}.0\n'
    found = sample(text, Dialect.SGLANG)
    assert (found.prefix_hits, found.prefix_queries) == (7.0, 16.0)


def test_the_newer_histogram_of_time_per_token_is_preferred() -> None:
    text = exposition(SGLANG_LLAMA).replace(
        "sglang:e2e_request_latency_seconds", "sglang:request_time_per_output_token_seconds"
    )
    found = sample(text, Dialect.SGLANG)
    assert found.time_per_output_token is not None
    assert found.time_per_output_token.count == 3.0


def test_no_window_before_the_first_one_closed() -> None:
    text = edited(exposition(SGLANG_LLAMA), {"sglang:spec_accept_length": 0})
    assert sample(text, Dialect.SGLANG).window is None


def test_an_engine_without_drafter_has_no_speculation() -> None:
    assert sample(without(exposition(VLLM), "vllm:spec_decode")).speculation is None
    text = without(exposition(SGLANG_LLAMA), "sglang:spec_")
    found = sample(text, Dialect.SGLANG)
    assert (found.window, found.verify_steps) == (None, None)


def test_statistics_switched_off_leave_nothing_to_read() -> None:
    text = without(exposition(VLLM), "vllm:")
    text = "\n".join(line for line in text.splitlines() if " vllm:" not in line) + "\n"
    assert read(text, VLLM_RULES) is None


def test_a_gauge_that_is_not_a_number_has_no_value() -> None:
    text = edited(exposition(SGLANG_LLAMA), {"sglang:token_usage": "NaN"})
    assert sample(text, Dialect.SGLANG).kv_usage is None


@pytest.mark.parametrize("value", ["NaN", "-1.0", "+Inf", "-Inf"])
@pytest.mark.parametrize(
    "series",
    [
        "vllm:generation_tokens_total",
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"',
        "vllm:time_to_first_token_seconds_sum",
        'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25"',
        "vllm:time_to_first_token_seconds_count",
    ],
)
def test_impossible_values(series: str, value: str) -> None:
    assert fault(edited(exposition(VLLM), {series: value})) is Fault.BAD_VALUE


def test_a_histogram_has_to_rise() -> None:
    bucket = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25"'
    assert fault(edited(exposition(VLLM), {bucket: 1})) is Fault.BAD_VALUE


_DRAFTS = 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 297.0\n'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (_DRAFTS + _DRAFTS, Fault.MALFORMED),
        (_DRAFTS.replace("297.0", "many"), Fault.MALFORMED),
        (_DRAFTS.replace(" 297.0", ""), Fault.MALFORMED),
        (_DRAFTS.replace('"tiny"', '"tiny'), Fault.MALFORMED),
        (_DRAFTS.replace('"tiny"', "tiny"), Fault.MALFORMED),
        (_DRAFTS.replace('"tiny"', '"ti\\q\\"ny\\"'), Fault.MALFORMED),
        (_DRAFTS.replace('model_name="tiny"', 'engine="0"'), Fault.MALFORMED),
        (_DRAFTS.replace("tiny", "x" * MAX_LINE), Fault.TOO_LARGE),
        (_DRAFTS.replace("tiny", '\\"' * (MAX_LINE // 3)), None),
        (_DRAFTS.replace("tiny", 'a\\\\b\\nc\\"d\\q'), None),
        (_DRAFTS.replace("\n", " 1700000000000\n"), None),
        (_DRAFTS.replace("\n", "\r\n"), None),
        ("# TYPE vllm:spec_decode_num_drafts_total histogram\n" + _DRAFTS, None),
        ("# " + "x" * 10_000_000 + "\n" + _DRAFTS, None),
        ("x" * 10_000_000 + " 1\n" + _DRAFTS, None),
    ],
)
def test_hostile_lines(line: str, expected: Fault | None) -> None:
    """None: harmless, and what is read is what would have been read without it."""
    text = exposition(VLLM).replace(_DRAFTS, line)
    if expected is None:
        assert sample(decode(text.encode())) == sample(exposition(VLLM))
    else:
        assert fault(text) is expected


def test_too_many_wanted_lines() -> None:
    flood = "".join(_DRAFTS.replace('"0"', f'"{i}"') for i in range(20_000))
    assert fault(exposition(VLLM) + flood) is Fault.TOO_LARGE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", Fault.EMPTY),
        (b"\n \n", Fault.EMPTY),
        (b"<html>502</html>\n", Fault.MALFORMED),
        (b"\xff\xfe\n", Fault.NOT_UTF8),
        (exposition(VLLM).encode("utf-16"), Fault.TRUNCATED),
        (exposition(SGLANG_LLAMA).encode(), Fault.WRONG_ENGINE),
    ],
)
def test_what_is_no_exposition_of_this_engine(body: bytes, expected: Fault) -> None:
    assert fault(body) is expected


def test_cut_anywhere_it_is_an_error_or_whole_in_what_is_read() -> None:
    """Every place a line can be cut at, its end included; and no part of a number is taken for a number."""
    whole = exposition(VLLM)
    last_read = whole.index("\n", whole.index("vllm:request_time_per_output_token_seconds_sum"))
    first_read = whole.index("\nvllm:")
    ends = [i + 1 for i, letter in enumerate(whole) if letter == "\n"]
    inside = [end + 7 for end in ends[:-1]]
    for place in [0, 1, *inside]:
        with pytest.raises(UnusableAnswer) as caught:
            decode(whole[:place].encode())
        assert caught.value.fault in {Fault.TRUNCATED, Fault.EMPTY}
    for place in ends:
        if place > last_read:
            assert sample(whole[:place]) == sample(whole)
        elif place > first_read + 1:
            assert fault(whole[:place]) is Fault.TRUNCATED
