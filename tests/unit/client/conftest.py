"""A double of an engine's chat endpoint: it sends the bytes it was given, in the pieces it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from draftgate.client.completion import ChatRequest, CompletionRecord, Message, Role, Sampling
from draftgate.client.stream import StreamClient
from draftgate.metrics.rules import Dialect


@dataclass
class StreamDouble:
    """Attributes:
    pieces: written one after the other; what follows None is never written, the connection is cut there.
    bodies, keys: what the requests brought.
    """

    pieces: Iterable[bytes | None] = ()
    status: int = 200
    stall: bool = False
    filler: int = 0
    extra: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, object]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        if self.status != 200:
            key = request.headers.get("Authorization")
            return web.Response(
                status=self.status, text=f"no: {key}{'.' * self.filler}{key}", headers=self.extra
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in self.pieces:
            if piece is None:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(piece)
            await asyncio.sleep(0)
        if self.stall:
            await asyncio.sleep(30)
        return response


Ask = Callable[..., CompletionRecord]


@pytest.fixture
def double() -> StreamDouble:
    return StreamDouble()


@pytest.fixture
def ask(double: StreamDouble) -> Ask:
    """Send one request to the double and return its record."""

    async def once(key: str | None, seconds: float, dialect: Dialect | None) -> CompletionRecord:
        request = ChatRequest("p", "tiny", (Message(Role.USER, "hello"),), Sampling(max_tokens=8), dialect)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", double.chat)
        async with TestServer(app, host="127.0.0.1") as server:
            url = f"http://127.0.0.1:{server.port}"
            secret = SecretStr(key) if key else None
            async with StreamClient(url, api_key=secret, request_seconds=seconds) as client:
                return await client.chat(request)

    return lambda key=None, seconds=20.0, dialect=None: asyncio.run(once(key, seconds, dialect))
