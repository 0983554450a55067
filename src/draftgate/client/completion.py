"""One streamed chat completion: the request, the record of its answer, and how chunks become the record."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field

from draftgate.metrics.requests import request_counters
from draftgate.metrics.rules import Dialect
from draftgate.metrics.sample import SpeculationCounters


class Role(enum.StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class Message:
    role: Role
    content: str = field(repr=False)


@dataclass(frozen=True)
class Sampling:
    """Stated in every request: engines' defaults change between versions and come from the model's folder.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: longest answer, in tokens.
        ignore_eos: go on to ``max_tokens`` past the model's end token (vLLM and SGLang know it).
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ignore_eos: bool = False


# vLLM then sends the token ids of each chunk; an engine that does not know the name ignores it. SGLang 0.5.20
# refuses a stream with vLLM's name; it sends all ids, and what became of the drafts, at the stream's end
# (its entrypoints/openai/serving_chat.py).
_EXTRAS: dict[Dialect | None, dict[str, object]] = {
    Dialect.VLLM: {"return_token_ids": True},
    Dialect.SGLANG: {
        "return_input_ids_in_sglext": True,
        "return_output_ids_in_sglext": True,
        "return_spec_tokens_details": True,
    },
}


@dataclass(frozen=True)
class ChatRequest:
    """One streamed request to ``/v1/chat/completions``, so that the model's chat template applies.

    Attributes:
        dialect: of the engine; None where it is unknown.
    """

    prompt_id: str
    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    dialect: Dialect | None = None

    def body(self) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": str(m.role), "content": m.content} for m in self.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **_EXTRAS.get(self.dialect, _EXTRAS[Dialect.VLLM]),
            "max_tokens": self.sampling.max_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.sampling.seed,
        }
        if self.sampling.ignore_eos:
            body["ignore_eos"] = True
        return body


@dataclass(frozen=True)
class CompletionRecord:
    """What happened to one request. Times are seconds of one monotonic clock; unknown is None.

    Attributes:
        sent: just before the request was written.
        first: the first non-empty delta: text, reasoning, a tool call, or token ids.
        first_answer: the first delta that is not reasoning.
        last: the last non-empty delta, or the chunk with the finish reason if that came later.
        closed: the stream's end, or the error.
        chunks: non-empty deltas; under speculation one holds several tokens, so it is never a token count.
        prompt_tokens, completion_tokens: from the engine's usage alone.
        prompt_token_ids, token_ids: where the engine sends them.
        error: what went wrong; such a record stands in no figure.
        speculation: of this request, where the engine tells it (SGLang).
    """

    prompt_id: str
    sent: float
    first: float | None
    first_answer: float | None
    last: float | None
    closed: float
    chunks: int
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    text: str = field(repr=False)
    reasoning: str = field(repr=False)
    prompt_token_ids: tuple[int, ...] | None = field(repr=False)
    token_ids: tuple[int, ...] | None = field(repr=False)
    error: str | None
    speculation: SpeculationCounters | None = None


_GOOD_ENDS = frozenset({"stop", "length", "tool_calls", "function_call"})


class ChunkError(Exception):
    """A chunk that is an error object, or no chunk at all."""


class Answer:
    """Takes chunks with their arrival times and gives the record."""

    def __init__(self, prompt_id: str, sent: float) -> None:
        self._prompt_id, self._sent = prompt_id, sent
        self._first: float | None = None
        self._first_answer: float | None = None
        self._last: float | None = None
        self._chunks = 0
        self._usage: tuple[int, int] | None = None
        self._finish: str | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._prompt_ids: tuple[int, ...] | None = None
        self._ids: list[int] | None = None
        self._speculation: SpeculationCounters | None = None
        self._done = False

    def take(self, at: float, data: str) -> None:
        """Add the event ``data`` that arrived at time ``at``, in seconds.

        Raises:
            ChunkError: it is an error object, or not a chat completion chunk.
        """
        if data == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(data)
        except json.JSONDecodeError as error:
            raise ChunkError("a chunk is not JSON") from error
        if not isinstance(chunk, dict):
            raise ChunkError("a chunk is not a JSON object")
        if chunk.get("error") or chunk.get("object") == "error":
            raise ChunkError(f"the engine sent an error: {_message(chunk)}")
        try:
            self._chunk(at, chunk)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ChunkError("a chunk has not the form of a chat completion chunk") from error

    def _chunk(self, at: float, chunk: dict[str, object]) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
        if chunk.get("prompt_token_ids"):
            self._prompt_ids = _ids(chunk["prompt_token_ids"])
        extension = chunk.get("sglext")
        if isinstance(extension, dict):
            self._extension(extension)
        choices = chunk.get("choices") or []
        if not isinstance(choices, list):
            raise TypeError("choices")
        for choice in choices:
            self._choice(at, choice)

    def _extension(self, told: dict[str, object]) -> None:
        if told.get("input_ids"):
            self._prompt_ids = _ids(told["input_ids"])
        answers = told.get("output_ids")
        if isinstance(answers, list):
            self._ids = list(_ids(answers[0]))
        details = told.get("spec_tokens_details")
        if isinstance(details, dict):
            self._speculation = request_counters(details)

    def _choice(self, at: float, choice: dict[str, object]) -> None:
        delta = choice.get("delta") or {}
        if not isinstance(delta, dict):
            raise TypeError("delta")
        text = str(delta.get("content") or "")
        # vLLM says `reasoning`, SGLang and older vLLM `reasoning_content`.
        reasoning = str(delta.get("reasoning") or delta.get("reasoning_content") or "")
        ids = _ids(choice.get("token_ids") or ())
        self._text.append(text)
        self._reasoning.append(reasoning)
        if choice.get("token_ids") is not None:
            self._ids = [*(self._ids or ()), *ids]
        if text or reasoning or ids or delta.get("tool_calls"):
            self._chunks += 1
            self._last = at
            self._first = at if self._first is None else self._first
            if self._first_answer is None and (text or delta.get("tool_calls")):
                self._first_answer = at
        if choice.get("finish_reason"):
            self._finish = str(choice["finish_reason"])
            self._last = at

    def record(self, closed: float, error: str | None = None) -> CompletionRecord:
        """The record at time ``closed``; ``error`` is what ended the stream, if anything did."""
        prompt_tokens, completion_tokens = self._usage or (None, None)
        return CompletionRecord(
            prompt_id=self._prompt_id,
            sent=self._sent,
            first=self._first,
            first_answer=self._first_answer,
            last=self._last,
            closed=closed,
            chunks=self._chunks,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            finish_reason=self._finish,
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            prompt_token_ids=self._prompt_ids,
            token_ids=None if self._ids is None else tuple(self._ids),
            error=error or self._fault(),
            speculation=self._speculation,
        )

    def _fault(self) -> str | None:
        if not self._done:
            return "the stream ended before [DONE]"
        if self._finish not in _GOOD_ENDS:
            return f"the engine ended it with finish_reason {self._finish!r}"
        if self._usage is None:
            return "the stream carried no usage, and chunks are no token count"
        if self._ids is not None and len(self._ids) != self._usage[1]:
            return f"usage says {self._usage[1]} tokens, the stream carried {len(self._ids)}"
        return None


def _ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError("token ids")
    return tuple(int(item) for item in value)


def _message(chunk: dict[str, object]) -> str:
    error = chunk.get("error")
    holder = error if isinstance(error, dict) else chunk
    return str(holder.get("message") or error or "without a message")
