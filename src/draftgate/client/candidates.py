"""What an engine thinks of the next token after an exact sequence of token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, assert_never

from pydantic import SecretStr

from draftgate.client.exchange import exchange
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.rules import Dialect

# vLLM's default --max-logprobs; a rounding tie is a matter of the first two.
_TOP = 20
_MAX_BYTES = 2**20


def next_token_logprobs(
    base_url: str,
    model: str,
    prefix: Sequence[int],
    *,
    api_key: SecretStr | None,
    dialect: Dialect = Dialect.VLLM,
    seconds: float = 60.0,
) -> dict[int, float]:
    """Log-probabilities, in nats, of the likeliest next tokens after ``prefix``, by token id.

    They come from the prompt's own pass, so no drafter takes part. A difference of two of them is the
    difference of the two logits.

    Raises:
        UnusableAnswer: no answer, or none of the expected form.
    """
    match dialect:
        case Dialect.VLLM:
            path, send, tokens = "/v1/completions", _to_vllm(model, prefix), _from_vllm
        case Dialect.SGLANG:
            path, send, tokens = "/generate", _to_sglang(prefix), _from_sglang
        case _:
            assert_never(dialect)
    key = api_key.get_secret_value() if api_key else None
    answer = exchange(f"{base_url}{path}", seconds=seconds, max_bytes=_MAX_BYTES, send=send, key=key)
    if answer.status != 200:
        raise UnusableAnswer(Fault.HTTP_STATUS, answer.status)
    try:
        return tokens(json.loads(answer.body))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise UnusableAnswer(Fault.MALFORMED) from None


def _to_vllm(model: str, prefix: Sequence[int]) -> dict[str, object]:
    return {
        "model": model,
        "prompt": list(prefix),
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": _TOP,
        # Text does not tell all tokens apart; with this vLLM names them "token_id:7".
        "return_tokens_as_token_ids": True,
    }


def _from_vllm(answer: Any) -> dict[int, float]:
    top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    return {int(name.removeprefix("token_id:")): float(value) for name, value in top.items()}


def _to_sglang(prefix: Sequence[int]) -> dict[str, object]:
    """Its own endpoint: the OpenAI-compatible one names tokens by text alone."""
    return {
        "input_ids": list(prefix),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "top_logprobs_num": _TOP,
    }


def _from_sglang(answer: Any) -> dict[int, float]:
    return {int(token): float(value) for value, token, _ in answer["meta_info"]["output_top_logprobs"][0]}
