"""A stand-in for an engine's processes, for faults that would need hundreds of real starts.

As vLLM it is three processes in one session: an API server, its engine core, and the core's worker. The
core runs without environment, as it looks where a process writes its title over it. Signals, deaths and
drains follow vLLM 0.32: SIGTERM to the API server lets running requests end, then ends the core, which
ends its worker; the death of the core ends the API server, but not the other way round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--role", choices=["api", "core", "worker", "escapee"], default="api")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pids", type=Path, help="each role writes its pid into a file of this folder")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--replay", type=Path, help="write this log first")
    parser.add_argument("--exit-code", type=int, help="end with it after the log")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--echo-environment", metavar="NAME", help="write this variable into the log")
    parser.add_argument("--escape", action="store_true", help="start a process that leaves the session")
    parser.add_argument("--refuse", type=int, help="answer this status to every generation")
    # A request with more than one token runs until this file is there.
    parser.add_argument("--finish", type=Path)
    options = parser.parse_args()
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.pids:
        note = options.pids / f".{options.role}"
        note.write_text(str(os.getpid()))
        note.rename(options.pids / options.role)
    {"api": _api, "core": _core, "worker": _sleep, "escapee": _sleep}[options.role](options)


def _child(options: argparse.Namespace, role: str) -> subprocess.Popen[bytes]:
    extra = [*(["--pids", str(options.pids)] if options.pids else []), *(["--stubborn"] * options.stubborn)]
    return subprocess.Popen([sys.executable, __file__, "--role", role, *extra], env={})


def _sleep(_: argparse.Namespace) -> None:
    while True:
        time.sleep(60)


def _core(options: argparse.Namespace) -> None:
    worker = _child(options, "worker")
    stopping = threading.Event()
    if not options.stubborn:
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while worker.poll() is None and not stopping.wait(0.05):
        pass
    if worker.poll() is None:
        worker.terminate()
        worker.wait()


def _api(options: argparse.Namespace) -> None:
    if options.replay:
        sys.stdout.buffer.write(options.replay.read_bytes())
        sys.stdout.flush()
    if options.echo_environment:
        print(f"args: {{'api_key': ['{os.environ[options.echo_environment]}']}}", flush=True)
    if options.exit_code is not None:
        sys.exit(options.exit_code)
    if options.escape:
        subprocess.Popen(
            [sys.executable, __file__, "--role", "escapee", "--pids", str(options.pids)],
            start_new_session=True,
        )
    core = _child(options, "core")
    server = _Server(options)
    if not options.never_ready:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    stopping = threading.Event()
    if not options.stubborn:
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while core.poll() is None and not stopping.wait(0.05):
        pass
    if core.poll() is None:
        while server.running:
            time.sleep(0.05)
        core.terminate()
        core.wait()
        print("[shutdown] complete", flush=True)
        sys.exit(0)
    print("EngineDeadError: the engine core died", flush=True)
    sys.exit(1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running = 0
        super().__init__(("127.0.0.1", options.port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = asked["max_tokens"]
        options = self.server.options
        if options.refuse:
            self._answer(options.refuse, {})
            return
        self.server.running += 1
        try:
            if tokens > 1:
                print("a long request runs", flush=True)
                while not options.finish.exists():
                    time.sleep(0.05)
            self._answer(200, {"usage": {"completion_tokens": tokens}})
        finally:
            self.server.running -= 1

    def _answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    main()
