"""What is asked of the engine: prompts, lengths, sampling, concurrency; the same for every arm."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from draftgate.client.completion import ChatRequest, Message, Role, Sampling
from draftgate.errors import BenchRefused
from draftgate.metrics.rules import Dialect
from draftgate.receipt import digest


@dataclass(frozen=True)
class Prompt:
    id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Workload:
    """A closed-loop load: ``concurrency`` requests in flight until all are answered.

    Attributes:
        repeats: how often each prompt is asked; more than once, the prefix cache answers for the engine.
        concurrency: C, requests in flight.
        warmup: requests before the window, with prompts of their own, so that they warm no cache for it.
    """

    prompts: tuple[Prompt, ...]
    sampling: Sampling
    concurrency: int = 1
    repeats: int = 1
    warmup: int = 2

    def requests(self, model: str, dialect: Dialect | None = None) -> Iterator[ChatRequest]:
        """The measured requests in their order; repeats come whole round after whole round."""
        for _ in range(self.repeats):
            for prompt in self.prompts:
                yield ChatRequest(prompt.id, model, prompt.messages, self.sampling, dialect)

    def warmup_requests(self, model: str, dialect: Dialect | None = None) -> Iterator[ChatRequest]:
        for number in range(self.warmup):
            text = f"Warm-up {number}: write the numbers from {number} on, each with its square."
            message = Message(Role.USER, text)
            yield ChatRequest(f"warm-up-{number}", model, (message,), self.sampling, dialect)

    @property
    def size(self) -> int:
        return len(self.prompts) * self.repeats

    @property
    def repeated(self) -> int:
        """Requests whose prompt was asked before in this workload."""
        return self.size - len(Counter(prompt.messages for prompt in self.prompts))

    def description(self) -> dict[str, object]:
        """The workload for the receipt: its digest stands for the prompts' text."""
        return {
            "prompts": len(self.prompts),
            "digest": digest([[(m.role, m.content) for m in p.messages] for p in self.prompts]),
            "repeats": self.repeats,
            "concurrency": self.concurrency,
            "warmup": self.warmup,
            "max_tokens": self.sampling.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
            "ignore_eos": self.sampling.ignore_eos,
        }


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)
    role: Role
    content: str


class _Line(BaseModel):
    """One line of a prompts file: ``prompt`` (one user message) or ``messages``; other keys are not read."""

    model_config = ConfigDict(frozen=True)
    id: str | None = None
    prompt: str | None = None
    messages: tuple[_Message, ...] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> _Line:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("needs either prompt or messages")
        return self

    def as_prompt(self, number: int) -> Prompt:
        messages = self.messages or (_Message(role=Role.USER, content=self.prompt or ""),)
        return Prompt(self.id or f"line-{number}", tuple(Message(m.role, m.content) for m in messages))


def load_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read prompts from a JSON-lines file.

    Raises:
        BenchRefused: no such file, a line that is no prompt, an id twice, or no prompt at all.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BenchRefused("the prompts cannot be read", where=str(path), why=_reason(error)) from error
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompts.append(_Line.model_validate(json.loads(line)).as_prompt(number))
        except (ValidationError, json.JSONDecodeError) as error:
            raise BenchRefused(
                "a line of the prompts file is no prompt",
                where=f"{path}:{number}",
                why=_reason(error),
                next_step='write one object a line: {"id": "a", "prompt": "..."} or {"messages": [...]}',
            ) from error
    twice = [name for name, count in Counter(prompt.id for prompt in prompts).items() if count > 1]
    if twice:
        raise BenchRefused("prompt ids must differ", where=str(path), why=f"{twice[0]!r} stands there twice")
    if not prompts:
        raise BenchRefused("there is no prompt to ask", where=str(path))
    return tuple(prompts)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'line'}: {e['msg']}" for e in error.errors())
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
