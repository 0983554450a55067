"""A double of a speculating vLLM for the bench: it streams fixed answers and counts them as vLLM does.

Only what the bench asks of an engine is there. In a test: ``with ChattingEngine() as engine: engine.url``.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from types import TracebackType
from typing import Self

from aiohttp import web

from tests.standin.expositions import VLLM, exposition

# Each answer: the first token alone, then a verify step of four tokens with three accepted drafts, and so on.
STEP_SECONDS = 0.02  # so that the client waits for the double, and not for itself
STEPS = ((0,), (1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12))
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


class ChattingEngine:
    """Attributes:
    model: the served name.
    fail_after: chat requests that are answered; later ones get HTTP 500. None answers all.
    counts_drafts: whether speculation shows in the counters.
    restart_after: chat requests after which all counters begin anew.
    requests: bodies of the chat requests.
    keys: their Authorization headers.
    """

    def __init__(
        self, *, fail_after: int | None = None, counts_drafts: bool = True, restart_after: int | None = None
    ) -> None:
        self.model = "tiny-python"
        self.fail_after = fail_after
        self.counts_drafts = counts_drafts
        self.restart_after = restart_after
        self.requests: list[dict[str, object]] = []
        self.keys: list[str | None] = []
        self._counted: Counter[str] = Counter()
        self._base = True

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.model}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self._exposition())

    def _exposition(self) -> str:
        lines = []
        for line in exposition(VLLM).splitlines():
            found = re.match(r'(vllm:\w+_total)\{(?:.*position="(\d+)".*|.*)\} (\S+)$', line)
            if not found:
                lines.append(line)
            elif self.counts_drafts or "spec_decode" not in line:
                series = f"{found[1]}/{found[2]}" if found[2] else found[1]
                value = (float(found[3]) if self._base else 0.0) + self._counted[series]
                lines.append(f"{line.rpartition(' ')[0]} {value}")
        return "\n".join(lines) + "\n"

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        if self.fail_after is not None and len(self.requests) > self.fail_after:
            return web.json_response({"error": {"message": "no more"}}, status=500)
        if self.restart_after == len(self.requests):
            self._base = False
            self._counted.clear()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        role = {"delta": {"role": "assistant", "content": ""}}
        await self._send(response, {"prompt_token_ids": [1, 2, 3], "choices": [role]})
        for number, tokens in enumerate(STEPS):
            text = "".join(f" {token}" for token in tokens)
            finish = "length" if number == len(STEPS) - 1 else None
            choice = {"delta": {"content": text}, "token_ids": list(tokens), "finish_reason": finish}
            await asyncio.sleep(STEP_SECONDS)
            self._count_step(len(tokens), first=number == 0)
            await self._send(response, {"choices": [choice]})
        usage = {"prompt_tokens": 3, "completion_tokens": sum(map(len, STEPS))}
        await self._send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    def _count_step(self, tokens: int, *, first: bool) -> None:
        counted = self._counted
        counted["vllm:generation_tokens_total"] += tokens
        if first:
            counted["vllm:prompt_tokens_total"] += 3
            counted["vllm:prefix_cache_queries_total"] += 3
            return
        counted["vllm:spec_decode_num_drafts_total"] += 1
        counted["vllm:spec_decode_num_draft_tokens_total"] += 3
        counted["vllm:spec_decode_num_accepted_tokens_total"] += tokens - 1
        for position in range(tokens - 1):
            counted[f"{_ACCEPTED}/{position}"] += 1

    async def _send(self, response: web.StreamResponse, chunk: dict[str, object]) -> None:
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
