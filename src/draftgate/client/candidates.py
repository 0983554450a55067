"""What an engine thinks of the next token after an exact sequence of token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import SecretStr

from draftgate.client.exchange import exchange
from draftgate.metrics.faults import Fault, UnusableAnswer

# vLLM's default --max-logprobs; a rounding tie is a matter of the first two.
_TOP = 20
_MAX_BYTES = 2**20


def next_token_logprobs(
    base_url: str, model: str, prefix: Sequence[int], *, api_key: SecretStr | None, seconds: float = 60.0
) -> dict[int, float]:
    """Log-probabilities, in nats, of the likeliest next tokens after ``prefix``, by token id.

    They come from the prompt's own pass, so no drafter takes part. A difference of two of them is the
    difference of the two logits.

    Raises:
        UnusableAnswer: no answer, or none of the expected form.
    """
    send = {
        "model": model,
        "prompt": list(prefix),
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": _TOP,
        # Text does not tell all tokens apart; with this vLLM names them "token_id:7".
        "return_tokens_as_token_ids": True,
    }
    key = api_key.get_secret_value() if api_key else None
    answer = exchange(f"{base_url}/v1/completions", seconds=seconds, max_bytes=_MAX_BYTES, send=send, key=key)
    if answer.status != 200:
        raise UnusableAnswer(Fault.HTTP_STATUS, answer.status)
    try:
        top = json.loads(answer.body)["choices"][0]["logprobs"]["top_logprobs"][0]
        return {int(name.removeprefix("token_id:")): float(value) for name, value in top.items()}
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise UnusableAnswer(Fault.MALFORMED) from None
