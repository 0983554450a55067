"""A launch of the stand-in for an engine, in folders of its own, ended whole whatever the test did."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import requests

from draftgate.host.lock import gpu_lock
from draftgate.host.processes import ProcessIdentity, find, identify, wait_until
from draftgate.launch.record import LaunchRecord, read_launch

PROGRAM = Path(__file__).with_name("launching.py")
# So long that only a hang reaches it.
LIMIT = 300.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Launched:
    """A running ``draftgate launch``.

    Attributes:
        argv: of the launcher; for the stand-in from `standin_argv`.
        folder: holds ``state``, ``lock``, ``pids``, ``out`` and ``err``.
    """

    def __init__(
        self, folder: Path, argv: tuple[str, ...], environment: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.state_dir, self.lock_dir, self.pids = folder / "state", folder / "lock", folder / "pids"
        self.pids.mkdir(exist_ok=True)
        self.environment = {
            **os.environ,
            "DRAFTGATE_STATE_DIR": str(self.state_dir),
            "DRAFTGATE_LOCK_DIR": str(self.lock_dir),
            **(environment or {}),
        }
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        record = self.record()
        self.process.kill()
        self.process.wait()
        if record is not None and record.session is not None:
            record.session.end(0)

    def record(self) -> LaunchRecord | None:
        """What this very launch wrote."""
        record = read_launch(self.state_dir)
        return record if record is not None and record.launcher.pid == self.process.pid else None

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    def pid(self, role: str) -> int:
        path = self.pids / role
        until(path.exists, self)
        return int(path.read_text())

    def identity(self, role: str) -> ProcessIdentity:
        identity = identify(self.pid(role))
        assert identity is not None
        return identity

    def until_ready(self) -> LaunchRecord:
        def ready() -> bool:
            record = self.record()
            return (record is not None and record.ready_at is not None) or self.process.poll() is not None

        until(ready, self)
        record = self.record()
        assert record is not None, self.err
        assert record.ready_at is not None, self.err
        return record

    def until_session(self) -> LaunchRecord:
        until(lambda: (record := self.record()) is not None and record.session is not None, self)
        record = self.record()
        assert record is not None
        return record

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def code(self) -> int:
        return self.process.wait(LIMIT)


class LongRequest:
    """A request in flight; ``status`` is its answer, None while there is none, 0 for a broken connection."""

    def __init__(self, url: str, body: dict[str, object]) -> None:
        self.status: int | None = None

        def ask() -> None:
            try:
                self.status = requests.post(url, json=body, timeout=LIMIT).status_code
            except requests.RequestException:
                self.status = 0

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    def answer(self) -> int | None:
        self._thread.join(LIMIT)
        return self.status


def standin_argv(
    port: int, *options: str | Path, drain: float = 5.0, start: float = LIMIT, key_file: Path | None = None
) -> tuple[str, ...]:
    head = (str(port), str(drain), str(start), str(key_file) if key_file else "-")
    return (sys.executable, str(PROGRAM), *head, *map(str, options))


def until(condition: object, launched: Launched | None = None) -> None:
    """Wait until ``condition()``; a test that never gets there fails and says what was logged."""
    assert callable(condition)
    assert wait_until(condition, LIMIT), launched and launched.err


def assert_lock_free(lock_dir: Path) -> None:
    """Nobody holds the GPU lock, and nothing had to be swept."""
    said: list[str] = []
    with gpu_lock(lock_dir, wait_seconds=0, tell=said.append):
        pass
    assert said == []


def assert_gone(*pids: int) -> None:
    assert [pid for pid in pids if find(pid)] == []
