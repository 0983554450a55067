"""The client against a double that streams well and badly: each fault is an error in the record."""

from __future__ import annotations

import asyncio
import json

import pytest

from draftgate.client.stream import StreamClient
from draftgate.metrics.rules import Dialect
from draftgate.metrics.sample import SpeculationCounters

from .conftest import Ask, StreamDouble


def event(value: object) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def delta(
    text: str | None = None,
    *,
    ids: list[int] | None = None,
    finish: str | None = None,
    reasoning: dict[str, str] | None = None,
) -> bytes:
    choice: dict[str, object] = {
        "index": 0,
        "delta": {"content": text, **(reasoning or {})},
        "finish_reason": finish,
    }
    if ids is not None:
        choice["token_ids"] = ids
    return event({"object": "chat.completion.chunk", "choices": [choice]})


ROLE = event(
    {"prompt_token_ids": [1, 2, 3], "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
)
USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})
DONE = b"data: [DONE]\n\n"
GOOD = [ROLE, delta("ab", ids=[5, 6]), delta("ñ🐍", ids=[7, 8], finish="length"), USAGE, DONE]


def test_a_whole_stream(ask: Ask, double: StreamDouble) -> None:
    double.pieces = GOOD
    record = ask()
    assert record.error is None
    assert (record.text, record.token_ids, record.prompt_token_ids) == ("abñ🐍", (5, 6, 7, 8), (1, 2, 3))
    assert (record.prompt_tokens, record.completion_tokens, record.finish_reason) == (3, 4, "length")
    assert record.chunks == 2  # two chunks, four tokens; the empty role chunk is none
    assert record.first is not None
    assert record.last is not None
    assert record.sent < record.first <= record.last <= record.closed


def test_sampling_is_stated_in_full(ask: Ask, double: StreamDouble) -> None:
    # A client's or an engine's changed default once looked like a lost acceptance (vLLM issue 33497).
    double.pieces = GOOD
    ask()
    assert double.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "max_tokens": 8,
            "temperature": 0.0,
            "top_p": 1.0,
            "seed": 0,
        }
    ]


def test_sglang_is_asked_in_its_own_words_and_tells_all_at_the_end(ask: Ask, double: StreamDouble) -> None:
    # As SGLang 0.5.20 ends a stream (entrypoints/openai/serving_chat.py).
    told = {
        "input_ids": [1, 2, 3],
        "output_ids": [[5, 6, 7, 8]],
        "spec_tokens_details": {
            "spec_verify_ct": 2,
            "spec_num_proposed_drafts": 6,
            "spec_correct_drafts_histogram": [1, 1],
        },
    }
    double.pieces = [ROLE, delta("ab"), delta("cd", finish="length"), event({"choices": [], "sglext": told})]
    double.pieces += [USAGE, DONE]
    record = ask(dialect=Dialect.SGLANG)
    assert record.error is None
    assert (record.token_ids, record.prompt_token_ids) == ((5, 6, 7, 8), (1, 2, 3))
    assert record.speculation == SpeculationCounters(2, 6, 1, (1,))
    assert "return_token_ids" not in double.bodies[0]
    asked = {name for name, value in double.bodies[0].items() if name.startswith("return_") and value is True}
    assert asked == {
        "return_input_ids_in_sglext",
        "return_output_ids_in_sglext",
        "return_spec_tokens_details",
    }


def test_bytes_cut_anywhere_and_keep_alives_change_nothing(ask: Ask, double: StreamDouble) -> None:
    double.pieces = [bytes([byte]) for byte in b": keep-alive\n\n".join(GOOD)]
    assert ask().text == "abñ🐍"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_the_first_token_may_be_reasoning(ask: Ask, double: StreamDouble, name: str) -> None:
    # Measured on the first content, reasoning made 28.64 s look like 34.69 s (club-3090 issue 1096).
    double.pieces = [ROLE, delta(reasoning={name: "hm"}), delta("yes", finish="stop"), USAGE, DONE]
    record = ask()
    assert (record.reasoning, record.text, record.chunks, record.error) == ("hm", "yes", 2, None)
    assert record.first is not None
    assert record.first_answer is not None
    assert record.first < record.first_answer


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([*GOOD[:3], USAGE], "the stream ended before [DONE]"),
        ([*GOOD[:3], DONE], "the stream carried no usage, and chunks are no token count"),
        ([ROLE, delta("ab", ids=[5, 6]), USAGE, DONE], "the engine ended it with finish_reason None"),
        ([delta("a", finish="abort"), USAGE, DONE], "the engine ended it with finish_reason 'abort'"),
        ([delta("a", ids=[5], finish="stop"), USAGE, DONE], "usage says 4 tokens, the stream carried 1"),
        (
            [*GOOD[:2], event({"error": {"message": "engine died", "code": 500}})],
            "ChunkError: the engine sent an error: engine died",
        ),
        (
            [event({"object": "error", "message": "old form"})],
            "ChunkError: the engine sent an error: old form",
        ),
        ([b"data: {]\n\n"], "ChunkError: a chunk is not JSON"),
        ([b"data: 7\n\n"], "ChunkError: a chunk is not a JSON object"),
        ([event({"choices": 7})], "ChunkError: a chunk has not the form of a chat completion chunk"),
        (
            [event({"choices": [], "sglext": {"output_ids": []}})],
            "ChunkError: a chunk has not the form of a chat completion chunk",
        ),
        ([event({"choices": [7]})], "ChunkError: a chunk has not the form of a chat completion chunk"),
        ([event({"usage": {}})], "ChunkError: a chunk has not the form of a chat completion chunk"),
        ([b'data: "\xff"\n\n'], "StreamBroken: an event is not UTF-8"),
    ],
)
def test_a_broken_stream_says_how(ask: Ask, double: StreamDouble, pieces: list[bytes], error: str) -> None:
    double.pieces = pieces
    assert ask().error == error


def test_a_cut_connection_is_an_error(ask: Ask, double: StreamDouble) -> None:
    double.pieces = [*GOOD[:2], None]
    record = ask()
    assert record.error is not None
    assert record.error.startswith("ClientPayloadError: ")
    assert record.text in ("", "ab")


def test_a_stalled_stream_ends_at_its_limit(ask: Ask, double: StreamDouble) -> None:
    double.pieces, double.stall = GOOD[:2], True
    record = ask(seconds=0.3)
    assert record.error is not None
    assert record.error.startswith("TimeoutError")
    assert record.completion_tokens is None


def test_the_key_is_sent_and_never_shown(ask: Ask, double: StreamDouble) -> None:
    double.status = 401  # the double's answer repeats the key, as a careless server would
    record = ask(key="canary-key")
    assert double.keys == ["Bearer canary-key"]
    assert record.error == "HTTP 401: no: Bearer [key]Bearer [key]"
    assert "canary-key" not in repr(record)


def test_a_long_error_is_cut_after_the_key_is_out(ask: Ask, double: StreamDouble) -> None:
    double.status = 401
    for double.filler in range(455, 480):
        error = ask(key="canary-key").error
        assert error is not None
        assert len(error) <= 500
        assert "can" not in error


def test_an_answer_from_elsewhere_is_none(ask: Ask, double: StreamDouble) -> None:
    double.status, double.extra = 307, {"Location": "http://127.0.0.1:9/"}
    error = ask().error
    assert error is not None
    assert error.startswith("HTTP 307")


def test_a_missed_sample_is_none() -> None:
    async def sample() -> str | None:
        async with StreamClient("http://127.0.0.1:9") as client:
            return await client.text("/metrics")

    assert asyncio.run(sample()) is None
