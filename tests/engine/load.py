"""Requests to a real engine, as many at once as there are threads, until it is enough."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import requests

from draftgate.bench.workload import load_prompts
from draftgate.data import data_root
from tests.engine.conftest import RunningEngine

_PROMPTS = [one.messages[-1].content for one in load_prompts(data_root() / "models" / "eval-prompts.jsonl")]
# About the bundled model's whole context, less what is to be generated.
LONG_CHARACTERS = 1800


class Load:
    """Attributes:
    served: requests that were answered with 200.
    """

    def __init__(self) -> None:
        self.served = 0
        self.ended = threading.Event()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def keep_asking(self, engine: RunningEngine, *, long: bool, tokens: int) -> None:
        while not self.ended.is_set():
            with self._lock:
                number = next(self._numbers)
            body = {
                "model": engine.loaded.profile.target.served_name,
                "messages": [{"role": "user", "content": _prompt(number, long)}],
                "max_tokens": tokens,
                "temperature": 0,
            }
            with suppress(requests.RequestException):
                answer = requests.post(f"{engine.url}/v1/chat/completions", json=body, timeout=600)
                with self._lock:
                    self.served += answer.status_code == 200


def _prompt(number: int, long: bool) -> str:
    """Never the same long one twice: what lies in the prefix cache is no prefill."""
    prompt = _PROMPTS[number % len(_PROMPTS)]
    if not long:
        return prompt
    text = "\n".join(_PROMPTS[(number + step) % len(_PROMPTS)] for step in range(1, 20))
    return f"# file {number}\n{text}"[:LONG_CHARACTERS] + prompt[:100]


@contextmanager
def load(engine: RunningEngine, threads: int, *, long: bool = False, tokens: int = 128) -> Iterator[Load]:
    """``threads`` requests at once, each followed by the next, until the block ends."""
    made = Load()
    workers = [
        threading.Thread(
            target=made.keep_asking, args=(engine,), kwargs={"long": long, "tokens": tokens}, daemon=True
        )
        for _ in range(threads)
    ]
    for worker in workers:
        worker.start()
    try:
        yield made
    finally:
        made.ended.set()
