from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from draftgate.client.completion import CompletionRecord

Make = Callable[..., CompletionRecord]

GOOD = CompletionRecord(
    prompt_id="p",
    sent=0.0,
    first=1.0,
    first_answer=1.0,
    last=3.0,
    closed=3.5,
    chunks=5,
    prompt_tokens=10,
    completion_tokens=17,
    finish_reason="length",
    text="",
    reasoning="",
    prompt_token_ids=(1, 2),
    token_ids=tuple(range(17)),
    error=None,
)


@pytest.fixture
def make() -> Make:
    """A good record with changes."""
    return lambda **changes: replace(GOOD, **changes)
