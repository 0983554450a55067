from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from pydantic import SecretStr

from draftgate.client import candidates
from draftgate.client.candidates import next_token_logprobs
from draftgate.client.exchange import Answer
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.rules import Dialect

Sent = list[tuple[str, Mapping[str, object], str | None]]


def served(monkeypatch: pytest.MonkeyPatch, body: object, status: int = 200) -> Sent:
    sent: Sent = []

    def exchange(url: str, *, send: Mapping[str, object], key: str | None, **limits: object) -> Answer:
        sent.append((url, send, key))
        return Answer(status, json.dumps(body).encode())

    monkeypatch.setattr(candidates, "exchange", exchange)
    return sent


def test_the_exact_prefix_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    top = {"token_id:7": -0.5, "token_id:9": -1.5}
    sent = served(monkeypatch, {"choices": [{"logprobs": {"top_logprobs": [top]}}]})
    found = next_token_logprobs("http://engine", "tiny", (1, 2, 3), api_key=SecretStr("k"))
    assert found == {7: -0.5, 9: -1.5}
    ((url, body, key),) = sent
    assert (url, key) == ("http://engine/v1/completions", "k")
    assert (body["prompt"], body["max_tokens"], body["temperature"]) == ([1, 2, 3], 1, 0.0)


def test_sglang_is_asked_at_its_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"meta_info": {"output_top_logprobs": [[[-0.5, 7, None], [-1.5, 9, None]]]}}
    sent = served(monkeypatch, told)
    found = next_token_logprobs(
        "http://engine", "tiny", (1, 2, 3), api_key=SecretStr("k"), dialect=Dialect.SGLANG
    )
    assert found == {7: -0.5, 9: -1.5}
    ((url, body, key),) = sent
    assert (url, key) == ("http://engine/generate", "k")
    assert (body["input_ids"], body["return_logprob"]) == ([1, 2, 3], True)


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        ({}, 404, Fault.HTTP_STATUS),
        ({}, 200, Fault.MALFORMED),
        ({"choices": [{"logprobs": None}]}, 200, Fault.MALFORMED),
        ({"choices": [{"logprobs": {"top_logprobs": [None]}}]}, 200, Fault.MALFORMED),
        # Names of tokens instead of their ids: an engine that does not know the option.
        ({"choices": [{"logprobs": {"top_logprobs": [{" the": -0.5}]}}]}, 200, Fault.MALFORMED),
    ],
)
def test_an_unusable_answer(monkeypatch: pytest.MonkeyPatch, body: object, status: int, fault: Fault) -> None:
    served(monkeypatch, body, status)
    with pytest.raises(UnusableAnswer) as caught:
        next_token_logprobs("http://engine", "tiny", (1,), api_key=None)
    assert caught.value.fault is fault
