"""Whatever of a real engine's launch is killed: no orphan, the lock free, status and exit code right."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest
import requests

from draftgate.cli.load import load
from draftgate.host.processes import command_line, find
from draftgate.host.session import Session
from draftgate.launch.record import LaunchRecord
from draftgate.profile.model import EngineName
from draftgate.runtime.environment import Environment, folder_of
from draftgate.runtime.state import State, StateFolder, Status
from draftgate.settings import settings
from tests.engine.conftest import python_of
from tests.standin.launched import LIMIT, Launched, assert_gone, assert_lock_free, free_port, until

pytestmark = pytest.mark.engine

CANARY = "canary-7d41b0"
DRAFTGATE = (sys.executable, "-m", "draftgate")


@dataclass(frozen=True)
class Kind:
    """What differs between the engines.

    Attributes:
        core, worker: the titles of its processes; what they are for differs, that they are two does not.
        imports: a line of its log when its own processes are about to be made; the worst moment.
        loads: a line of one of these while it loads.
        core_outlives: whether they live on without guard and server.
        key_file: whether the key reaches it by a file, not by its environment.
    """

    name: EngineName
    core: str
    worker: str
    imports: str
    loads: str
    core_outlives: bool
    key_file: bool


KINDS = (
    Kind(
        EngineName.VLLM,
        core="VLLM::EngineCore",
        worker="VLLM::Worker",
        imports="Initializing a V1 LLM engine",
        loads="Starting to load model",
        core_outlives=True,
        key_file=False,
    ),
    Kind(
        EngineName.SGLANG,
        core="sglang::scheduler",
        worker="sglang::detokenizer",
        imports="server_args=",
        loads="Init torch distributed begin",
        core_outlives=False,
        key_file=True,
    ),
)


class Box:
    """Folders of a machine on which nothing runs, and `draftgate` in them."""

    def __init__(self, folder: Path, stack: ExitStack, kind: Kind) -> None:
        self.folder, self.kind = folder, kind
        self.plain, self.speculative = f"{kind.name}-cpu", f"{kind.name}-cpu-eagle"
        self._stack = stack
        self.environment = {
            **os.environ,
            "DRAFTGATE_STATE_DIR": str(folder / "state"),
            "DRAFTGATE_LOCK_DIR": str(folder / "lock"),
            "DRAFTGATE_DATA_DIR": str(_data_dir(folder, self.plain)),
            "OMP_NUM_THREADS": "2",
        }
        self.port = free_port()
        self.sets: tuple[str, ...] = (
            "--set",
            f"server.port={self.port}",
            "--set",
            f"sidecar.port={free_port()}",
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (*DRAFTGATE, *words)
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )

    def launch(self) -> Launched:
        argv = (*DRAFTGATE, "launch", self.speculative, *self.sets)
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


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    with ExitStack() as stack:
        box = Box(tmp_path, stack, request.param)
        yield box
        box.run("down", "--now")


def _data_dir(folder: Path, profile: str) -> Path:
    """Where `draftgate engine install` put the engine; else a folder that names the tests' own."""
    pin = load(profile).pin
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


def _roles(box: Box, session: Session) -> dict[str, int]:
    """Pids by role: ``guard``, ``api``, ``core``, ``worker``."""
    names = {box.kind.core: "core", box.kind.worker: "worker"}
    found = {"guard": session.leader.pid}
    for process in session.members():
        words = command_line(process.pid) or ""
        if process.parent == session.leader.pid:
            found["api"] = process.pid
        elif words.split(" ")[0] in names:
            found[names[words.split(" ")[0]]] = process.pid
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
def test_a_killed_engine_process(box: Box, victim: str) -> None:
    launched = box.launch()
    record = launched.until_ready()
    pids = _roles(box, _session(record))
    launched.kill(pids[victim])
    assert launched.code() == 9
    _nothing_left(box, _session(record), pids)
    assert "the engine ended with" in launched.err
    assert "while it served" in launched.err
    code, status = box.status()
    assert (code, status.state) == (11, State.STOPPED)
    assert status.reason is not None
    assert status.reason.startswith("the engine ended with")


def test_a_killed_launcher(box: Box) -> None:
    launched = box.launch()
    record = launched.until_ready()
    pids = _roles(box, _session(record))
    launched.kill(launched.process.pid)
    launched.process.wait()
    _nothing_left(box, _session(record), pids)
    code, status = box.status()
    assert (code, status.state, status.reason) == (9, State.DEAD, "the launcher was killed")


def test_launcher_guard_and_api_killed_at_once(box: Box) -> None:
    """What is left wrote its title over its environment; `down` finds it all the same."""
    launched = box.launch()
    record = launched.until_ready()
    session = _session(record)
    pids = _roles(box, session)
    for pid in (pids["guard"], pids["api"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (launched.process.pid, pids["guard"], pids["api"]):
        os.kill(pid, signal.SIGKILL)
    launched.process.wait()
    until(lambda: not any(find(pids[role]) for role in ("guard", "api")), launched)
    if not box.kind.core_outlives:
        until(lambda: not session.members(), launched)
    # multiprocessing's resource tracker lives as long as one of its users does.
    left = {process.pid for process in session.members()}
    assert (left > {pids["core"], pids["worker"]}) is box.kind.core_outlives
    code, status = box.status()
    assert (code, status.state, status.left) == (9, State.DEAD, len(left))
    down = box.run("down")
    assert down.returncode == 0
    told = f"stopped: {len(left)} processes that a dead launch of {box.speculative} left"
    assert down.stdout == f"{told if left else 'nothing runs here'}\n"
    _nothing_left(box, session, pids)
    assert_gone(*left)
    assert box.status()[0] == 11


@pytest.mark.parametrize(
    ("when", "number", "code"), [("imports", signal.SIGINT, 130), ("loads", signal.SIGTERM, 143)]
)
def test_a_signal_during_start_up(box: Box, when: str, number: signal.Signals, code: int) -> None:
    launched = box.launch()
    session = _session(launched.until_session())
    line = box.kind.imports if when == "imports" else box.kind.loads
    until(lambda: line in launched.out, launched)
    members = {str(process.pid): process.pid for process in session.members()}
    launched.process.send_signal(number)
    assert launched.code() == code
    _nothing_left(box, session, members)
    assert f"stopped by {number.name}" in launched.err
    assert box.status()[0] == 11


def test_a_port_taken_while_it_starts(box: Box) -> None:
    launched = box.launch()
    session = _session(launched.until_session())
    # vLLM binds before it loads, SGLang after: then it says so, and stays.
    if box.kind.name is EngineName.SGLANG:
        until(lambda: box.kind.loads in launched.out, launched)
    with socket.create_server(("127.0.0.1", box.port)):
        assert launched.code() == 9
    _nothing_left(box, session, {})
    assert "the port is taken by another program" in launched.err
    assert "[Errno 98]" in launched.out
    status = box.status()[1]
    assert status.reason is not None
    assert status.reason.startswith("the engine cannot listen" if box.kind.key_file else "the engine ended")


def test_up_with_a_key_a_killed_sidecar_and_a_drain(box: Box) -> None:
    key_file = box.folder / "key"
    key_file.write_text(CANARY)
    box.sets += ("--set", f"server.api_key_file={key_file}")
    up = box.run("up", box.speculative, *box.sets, "--wait")
    assert up.returncode == 0, up.stderr
    code, status = box.status()
    assert (code, status.state, status.sidecar) == (0, State.READY, True)
    launch = StateFolder(box.folder / "state").launch()
    assert launch is not None
    session, pids = _session(launch), _roles(box, _session(launch))

    second = box.run("up", box.plain, *box.sets)
    assert second.returncode == 7
    assert f"profile '{box.speculative}' already runs here: ready" in second.stderr
    foreground = box.run("launch", box.plain, *box.sets)
    assert foreground.returncode == 8
    assert f"the GPU lock is held by profile '{box.speculative}'" in foreground.stderr

    assert requests.get(f"{status.base_url}/v1/models", timeout=10).status_code == 401
    everybody = [*pids.values(), status.launcher_pid, status.sidecar_pid]
    assert [pid for pid in everybody if CANARY in (command_line(pid or 0, limit=10**6) or "")] == []

    holders = [path for path in box.files() if CANARY.encode() in path.read_bytes()]
    assert [path.name for path in holders if path != key_file] == ["key.yaml"] * box.kind.key_file
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders if path != key_file} <= {0o600}
    for pid in everybody:
        in_environment = CANARY.encode() in Path(f"/proc/{pid}/environ").read_bytes()
        # vLLM's own processes inherit its variable, or wrote their titles over it; nobody else has one.
        assert not in_environment or (not box.kind.key_file and pid in pids.values())

    assert status.sidecar_pid is not None
    os.kill(status.sidecar_pid, signal.SIGKILL)
    until(lambda: box.status()[1].sidecar is False)
    assert (box.status()[0], box.status()[1].state) == (9, State.READY)

    assert status.launcher_pid is not None
    tokens, down = _tokens_of_a_request_during_down(box, status)
    assert down.returncode == 0, down.stderr
    assert tokens == 900
    assert f"stopped: engine of {box.speculative} (pid {status.launcher_pid})" in down.stdout
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
