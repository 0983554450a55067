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
from draftgate.sidecar.exposition import exposition, no_engine
from draftgate.sidecar.probe import report
from draftgate.sidecar.readiness import Readiness, Verdict
from draftgate.sidecar.watch import Watch

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"

_PAGES = ("/", "/metrics", "/readyz", "/probe")

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


class Subject:
    """One engine, with all that is remembered of it."""

    def __init__(self, config: SidecarConfig) -> None:
        self.config = config
        self.watch = Watch(config)
        self.readiness = Readiness(self.watch)


class SidecarServer(socketserver.ThreadingTCPServer):
    """Listens from the moment it is made; `serve_forever` answers.

    Args:
        host, port: where to listen; port 0 takes a free one.
        watched: the engine to ask, looked up for each request; None while none runs.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, watched: Callable[[], SidecarConfig | None]) -> None:
        self._host = host
        self._watched = watched
        self._subject: Subject | None = None
        self._changing = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise AddressUnusable(
                "the sidecar cannot listen",
                where=f"{host}:{port}",
                why=error.strerror,
                next_step="choose another with --host and --port, or sidecar.host and sidecar.port",
            ) from None

    def subject(self) -> Subject | None:
        """The engine that is watched now; what is remembered of it begins when it is first seen."""
        config = self._watched()
        with self._changing:
            if self._subject is None or self._subject.config != config:
                self._subject = None if config is None else Subject(config)
            return self._subject

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
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
        if parts.path == "/livez":
            self._answer("alive\n")
            return
        if parts.path not in _PAGES:
            self._answer("no such page\n", HTTPStatus.NOT_FOUND)
            return
        subject = self.server.subject()
        match parts.path:
            case "/":
                self._answer(_landing_page(subject.config.profile if subject else None), kind=_HTML)
            case "/metrics" if subject is None:
                self._answer(no_engine(), kind=_EXPOSITION)
            case _ if subject is None:
                self._verdict(Verdict(False, "no engine runs"))
            case "/metrics":
                allowed = self.headers.get("X-Prometheus-Scrape-Timeout-Seconds")
                scrape = subject.watch.scrape(scrape_limit(allowed, subject.config.scrape_timeout))
                self._answer(exposition(subject.config, scrape), kind=_EXPOSITION)
            case "/readyz":
                self._verdict(subject.readiness.check())
            case _ if parse_qs(parts.query).get("debug") == ["true"]:
                self._verdict(*report(subject.watch, subject.readiness))
            case _:
                self._verdict(subject.readiness.generate())

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


def serve(
    host: str, port: int, watched: Callable[[], SidecarConfig | None], announce: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT; to be called in the main thread.

    Args:
        host, port, watched: as of `SidecarServer`.
        announce: given the sidecar's URL once it listens.

    Raises:
        AddressUnusable: the address cannot be listened on.
    """
    stop = threading.Event()
    with SidecarServer(host, port, watched) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        announce(server.url)
        stop.wait()
        server.shutdown()


def _landing_page(profile: str | None) -> str:
    links = (
        ("/metrics", "the engine's metrics, scraped now"),
        ("/livez", "is this process alive"),
        ("/readyz", "can the engine generate"),
        ("/probe?debug=true", "try everything once and show it"),
    )
    items = "".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in links)
    title = f"draftgate sidecar of {html.escape(profile)}" if profile else "draftgate sidecar: no engine runs"
    return f'<!doctype html><html lang="en"><title>{title}</title><h1>{title}</h1><ul>{items}</ul></html>\n'
