"""The HTTP side: a few GET endpoints, one thread per request, ended by SIGTERM or SIGINT."""

from __future__ import annotations

import html
import math
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from draftgate.errors import AddressUnusable
from draftgate.sidecar.config import SidecarConfig
from draftgate.sidecar.exposition import exposition
from draftgate.sidecar.probe import report
from draftgate.sidecar.readiness import Readiness, Verdict
from draftgate.sidecar.watch import Watch

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"

# Prometheus takes the time of its whole request, so an answer at the last moment comes too late: the largest
# and worst answer takes most of this to be looked through.
_OFFSET_SECONDS = 1.0


def scrape_limit(header: str | None, own: float) -> float:
    """Seconds that the engine has to answer: what Prometheus allows less an offset, at most ``own``.

    Args:
        header: ``X-Prometheus-Scrape-Timeout-Seconds``; anything but a number above 0 is ignored.
    """
    try:
        allowed = float(header or "")
    except ValueError:
        return own
    if not 0 < allowed < math.inf:
        return own
    return min(own, max(allowed - _OFFSET_SECONDS, allowed / 2))


class SidecarServer(socketserver.ThreadingTCPServer):
    """Listens from the moment it is made; `serve_forever` answers.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, config: SidecarConfig) -> None:
        self.config = config
        self.watch = Watch(config)
        self.readiness = Readiness(self.watch)
        self.address_family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        try:
            super().__init__((config.host, config.port), _Handler)
        except OSError as error:
            raise AddressUnusable(
                "the sidecar cannot listen",
                where=f"{config.host}:{config.port}",
                why=error.strerror,
                next_step="choose another with --host and --port, or sidecar.host and sidecar.port",
            ) from None

    @property
    def url(self) -> str:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"http://{host}:{self.socket.getsockname()[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news; of anything else the type alone is told: it holds no secret."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"sidecar: a request failed: {type(error).__name__}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    server: SidecarServer
    server_version = "draftgate"
    sys_version = ""
    timeout = 10

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command not in {"GET", "HEAD"}:
            self._answer("only GET and HEAD\n", HTTPStatus.METHOD_NOT_ALLOWED)
            return False
        return True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        match parts.path:
            case "/metrics":
                limit = scrape_limit(
                    self.headers.get("X-Prometheus-Scrape-Timeout-Seconds"), self.server.config.scrape_timeout
                )
                self._answer(
                    exposition(self.server.config, self.server.watch.scrape(limit)), kind=_EXPOSITION
                )
            case "/livez":
                self._answer("alive\n")
            case "/readyz":
                self._verdict(self.server.readiness.check())
            case "/probe":
                if parse_qs(parts.query).get("debug") == ["true"]:
                    verdict, text = report(self.server.watch, self.server.readiness)
                    self._verdict(verdict, text)
                else:
                    self._verdict(self.server.readiness.generate())
            case "/":
                self._answer(_landing_page(self.server.config), kind=_HTML)
            case _:
                self._answer("no such page\n", HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """No access log: scrapes and probes would fill it."""

    def _verdict(self, verdict: Verdict, text: str | None = None) -> None:
        status = HTTPStatus.OK if verdict.ready else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(text or f"{verdict.reason}\n", status)

    def _answer(self, text: str, status: HTTPStatus = HTTPStatus.OK, kind: str = _TEXT) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def serve(config: SidecarConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; to be called in the main thread.

    Args:
        announce: given the sidecar's URL once it listens.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """
    stop = threading.Event()
    with SidecarServer(config) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        announce(server.url)
        stop.wait()
        server.shutdown()


def _landing_page(config: SidecarConfig) -> str:
    links = (
        ("/metrics", "the engine's metrics, scraped now"),
        ("/livez", "is this process alive"),
        ("/readyz", "can the engine generate"),
        ("/probe?debug=true", "try everything once and show it"),
    )
    items = "".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in links)
    title = f"draftgate sidecar of {html.escape(config.profile)}"
    return f'<!doctype html><html lang="en"><title>{title}</title><h1>{title}</h1><ul>{items}</ul></html>\n'
