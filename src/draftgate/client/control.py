"""Small requests to a running engine: which models it serves, and one token as proof that it generates."""

from __future__ import annotations

import json
from typing import Any

from draftgate.client.exchange import exchange
from draftgate.metrics.faults import Fault, UnusableAnswer

_MAX_BYTES = 2**20


def models(base_url: str, *, seconds: float, key: str | None = None) -> tuple[str, ...]:
    """Names of the served models.

    Raises:
        UnusableAnswer: no list of models within ``seconds``.
    """
    answer = _json(f"{base_url}/v1/models", seconds, None, key)
    try:
        return tuple(str(model["id"]) for model in answer["data"])
    except (KeyError, TypeError):
        raise UnusableAnswer(Fault.MALFORMED) from None


def generate_one_token(base_url: str, model: str, *, seconds: float, key: str | None = None) -> None:
    """Have one token generated.

    It goes through prefill and sampling alone, so it counts neither as a draft nor in acceptance.

    Raises:
        UnusableAnswer: no token within ``seconds``.
    """
    send = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
    answer = _json(f"{base_url}/v1/completions", seconds, send, key)
    try:
        made = answer["usage"]["completion_tokens"]
    except (KeyError, TypeError):
        raise UnusableAnswer(Fault.MALFORMED) from None
    if made != 1:
        raise UnusableAnswer(Fault.BAD_VALUE)


def _json(url: str, seconds: float, send: dict[str, object] | None, key: str | None) -> Any:
    answer = exchange(url, seconds=seconds, max_bytes=_MAX_BYTES, send=send, key=key)
    if answer.status != 200:
        raise UnusableAnswer(Fault.HTTP_STATUS, answer.status)
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):  # no JSON, no text, or nested without end
        raise UnusableAnswer(Fault.MALFORMED) from None
