"""Streaming chat requests for load: one session, many requests, one record each."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import aiohttp
from pydantic import SecretStr

from draftgate.client.completion import Answer, ChatRequest, ChunkError, CompletionRecord
from draftgate.client.sse import EventParser, StreamBroken

# At aiohttp's default of 64 KB a long context throttles the whole stream (vLLM issue 39963: 486 -> 44 tok/s).
_READ_BUFFER = 16 * 2**20
_FAULT_SHOWN = 500


class StreamClient:
    """Sends streamed chat requests to one OpenAI-compatible engine; an async context manager.

    A failed request is a record with an error, never an exception, and never holds the key.

    Args:
        base_url: such as ``http://127.0.0.1:8000``.
        connections: requests in flight at most; at least what the load asks for, or this is a second limit.
        request_seconds: limit of a whole request.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: SecretStr | None = None,
        connections: int = 100,
        request_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._key = api_key.get_secret_value() if api_key else None
        self._connections = connections
        self._seconds = request_seconds
        self._clock = clock

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections),
            headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            read_bufsize=_READ_BUFFER,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def chat(self, request: ChatRequest) -> CompletionRecord:
        """Send ``request``, read its stream to the end, and return what happened."""
        body = request.body()
        answer = Answer(request.prompt_id, self._clock())
        try:
            fault = await self._read(body, answer)
        except (aiohttp.ClientError, TimeoutError, OSError, StreamBroken, ChunkError) as error:
            # str, not repr: the repr of aiohttp's response errors holds the request's headers, key included.
            fault = f"{type(error).__name__}: {error}"
        return answer.record(self._clock(), self._redacted(fault))

    async def _read(self, body: dict[str, object], answer: Answer) -> str | None:
        url = f"{self.base_url}/v1/chat/completions"
        # An answer from elsewhere would be measured as this engine's, and get its key.
        async with self._session.post(url, json=body, allow_redirects=False) as response:
            if response.status != 200:
                body_start = await response.content.read(64 * 1024)
                return f"HTTP {response.status}: {body_start.decode(errors='replace')}"
            parser = EventParser()
            async for received in response.content.iter_any():
                at = self._clock()
                for data in parser.feed(received):
                    answer.take(at, data)
        return None

    async def text(self, path: str, *, seconds: float = 5.0) -> str | None:
        """The body of a GET, or None where it failed; for samples that may be missed."""
        with suppress(aiohttp.ClientError, TimeoutError, OSError, UnicodeDecodeError):
            url, timeout = f"{self.base_url}{path}", aiohttp.ClientTimeout(total=seconds)
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                if response.status == 200:
                    return await response.text()
        return None

    def _redacted(self, fault: str | None) -> str | None:
        """``fault`` without the key, then cut: the other way round half a key could stay."""
        if fault and self._key:
            fault = fault.replace(self._key, "[key]")
        return fault and fault[:_FAULT_SHOWN]
