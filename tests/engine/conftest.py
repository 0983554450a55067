"""A real engine, started from a profile on a free port, ended with its whole session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from draftgate.cli.load import Loaded, load
from draftgate.client.control import generate_one_token
from draftgate.engine.pins import Pin
from draftgate.errors import EngineMissing
from draftgate.launch.environment import engine_environment
from draftgate.metrics.faults import UnusableAnswer
from draftgate.runtime.environment import engine_python

START_SECONDS = 300.0


@dataclass
class RunningEngine:
    """Attributes:
    process: the API server; its whole session is the engine's.
    """

    loaded: Loaded
    process: subprocess.Popen[bytes]
    log: Path
    key: str | None

    @property
    def url(self) -> str:
        return self.loaded.command.base_url

    def session(self) -> list[psutil.Process]:
        """Its living processes, the API server first."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return sorted(found, key=lambda process: process.pid != self.process.pid)


def python_of(pin: Pin) -> Path:
    """The engine's interpreter: a path given for tests, else what `draftgate engine install` made."""
    if given := os.environ.get("DRAFTGATE_TEST_ENGINE_PYTHON"):
        return Path(given)
    try:
        return engine_python(pin)
    except EngineMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("; ".join(missing.lines()))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _running(profile: str, folder: Path, *sets: str) -> Iterator[RunningEngine]:
    loaded = load(profile, [f"server.port={free_port()}", *sets])
    key_file = loaded.profile.server.api_key_file
    key = key_file.read_text().strip() if key_file else None
    python = python_of(loaded.pin)
    environment = engine_environment(os.environ, loaded.command, python, key)
    log = folder / f"{profile}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            loaded.command.argv(str(python)),
            env={"OMP_NUM_THREADS": "2", **environment},
            # SGLang writes its requests' file below.
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    engine = RunningEngine(loaded, process, log, key)
    try:
        _await(engine)
        yield engine
    finally:
        for one in engine.session():
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        process.wait()


def _await(engine: RunningEngine) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            generate_one_token(
                engine.url, engine.loaded.profile.target.served_name, seconds=60, key=engine.key
            )
        except UnusableAnswer as error:
            if engine.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{error}\n{engine.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.2)
        else:
            return


StartEngine = Callable[..., RunningEngine]


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[StartEngine]:
    """``start_engine("vllm-cpu-eagle", "server.api_key_file=…")``: serves when it returns."""
    with ExitStack() as stack:
        yield lambda profile, *sets: stack.enter_context(_running(profile, tmp_path, *sets))
