"""A sidecar in this process, its stand-in engine, and a way to ask it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import requests

from draftgate.metrics.rules import Dialect
from draftgate.sidecar.config import SidecarConfig
from draftgate.sidecar.server import SidecarServer
from tests.standin.endpoint import StandinEngine

CONFIG = SidecarConfig(
    profile="vllm-cpu-eagle",
    dialect=Dialect.VLLM,
    engine_version="0.32.0",
    model="tiny",
    drafter="tiny-drafter",
    num_speculative_tokens=3,
    topk=1,
    engine_url="http://127.0.0.1:8000",
    # Generous: only what waits for ever is meant to meet them.
    scrape_timeout=30.0,
    probe_timeout=30.0,
)


class Sidecar:
    def __init__(self, server: SidecarServer) -> None:
        self.server = server
        self.url = server.url

    def get(self, path: str, **headers: str) -> requests.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return requests.get(self.url + path, headers=names, timeout=120)

    def metrics(self, **headers: str) -> str:
        answer = self.get("/metrics", **headers)
        assert answer.status_code == 200
        return answer.text


@pytest.fixture
def engine() -> Iterator[StandinEngine]:
    with StandinEngine() as engine:
        yield engine


StartSidecar = Callable[..., Sidecar]


@pytest.fixture
def start_sidecar() -> Iterator[StartSidecar]:
    with ExitStack() as stack:

        def start(**changes: object) -> Sidecar:
            config = replace(CONFIG, **changes)  # type: ignore[arg-type]
            server = stack.enter_context(SidecarServer("127.0.0.1", 0, lambda: config))
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(server.shutdown)
            return Sidecar(server)

        yield start


@pytest.fixture
def sidecar(engine: StandinEngine, start_sidecar: StartSidecar) -> Sidecar:
    return start_sidecar(engine_url=engine.url)


def value(text: str, series: str) -> float | None:
    """The value of one line of an exposition, None where it is absent."""
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.rpartition(" ")[0] == series]
    assert len(found) <= 1
    return float(found[0]) if found else None


def reason(text: str) -> str | None:
    """Why ``draftgate_up`` is 0, None where it is 1."""
    lines = [line for line in text.splitlines() if line.startswith("draftgate_scrape_error{")]
    assert (value(text, "draftgate_up") == 1.0) == (not lines)
    return lines[0].split('"')[1] if lines else None


def state(text: str) -> str:
    names = [
        line.split('"')[1]
        for line in text.splitlines()
        if line.startswith("draftgate_engine_state{") and line.endswith(" 1.0")
    ]
    assert len(names) == 1
    return names[0]
