"""`draftgate launch`: one engine in the foreground, from the GPU lock to its last process.

    lock → sweep → start → phases → health → first token → ready → … → drain → end of the session → lock free

The main thread alone decides; the log, the readiness probe, the guard's end and signals reach it as events.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import assert_never

from draftgate.client.key import read_key
from draftgate.engine.command import EngineCommand
from draftgate.errors import DraftgateError, EngineFailed, ExitCode
from draftgate.host.files import private_folder
from draftgate.host.lock import HeldLock, gpu_lock
from draftgate.host.port import refuse_if_taken
from draftgate.launch import phases
from draftgate.launch.death import cannot_listen, died, too_slow
from draftgate.launch.environment import engine_environment, key_config, secret_values
from draftgate.launch.journal import Journal
from draftgate.launch.log import EngineLog
from draftgate.launch.phases import Phase, PhaseReader, PhaseStarted
from draftgate.launch.process import EngineProcess, Started, stop_limit
from draftgate.launch.readiness import Refused, await_ready
from draftgate.launch.record import End
from draftgate.launch.redaction import Redactor
from draftgate.profile.model import Profile
from draftgate.settings import settings

# An engine that still loads has no request to finish; but it may have files to remove.
_START_UP_STOP_SECONDS = 3.0
# The kernel may hand a signal to any thread, but its handler runs in the main one, once that wakes.
_WAKE_SECONDS = 0.2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class _Refused:
    why: str


@dataclass(frozen=True)
class _Broken:
    """The engine lives, but what it said is the end of it."""

    failure: DraftgateError


@dataclass(frozen=True)
class _Ended:
    status: int


@dataclass(frozen=True)
class _Signal:
    number: signal.Signals


_Event = phases.Event | _Refused | _Broken | _Ended | _Signal


def launch(
    profile: Profile, command: EngineCommand, python: Path, *, wait_lock_seconds: float = 0.0
) -> ExitCode:
    """Run the engine until it is told to stop. To be called in the main thread, since it handles signals.

    The engine's log goes to standard output, redacted; phases and messages go to standard error.

    Args:
        python: the interpreter of the engine's environment.
        wait_lock_seconds: how long to wait for another engine to end; 0 refuses at once.

    Returns:
        INTERRUPTED, TERMINATED or HUNG_UP, after the signal of that name.

    Raises:
        LockHeld: another engine runs.
        EngineFailed: the engine ended by itself, or its port is taken, or it refuses to generate.
        TimedOut: it was not ready within ``launch.start_timeout_seconds``.
        DraftgateError: the API key cannot be read, a folder cannot be made.
    """
    state_dir = private_folder(settings().state_dir, "DRAFTGATE_STATE_DIR")
    journal = Journal(profile, command.base_url, state_dir, stop_limit(profile.launch.drain_seconds))
    try:
        with gpu_lock(settings().lock_dir, wait_seconds=wait_lock_seconds, tell=journal.tell) as lock:
            code = _Launch(profile, command, python, journal, state_dir).run(lock)
    except DraftgateError as error:
        journal.ended(End.by(error))
        raise
    except KeyboardInterrupt:
        journal.ended(End(exit_code=ExitCode.INTERRUPTED, what="interrupted before the engine was started"))
        raise
    stopped = f"stopped by {signal.Signals(code - 128).name}"
    journal.ended(End(exit_code=code, what=stopped))
    journal.tell(stopped)
    return code


class _Launch:
    def __init__(
        self, profile: Profile, command: EngineCommand, python: Path, journal: Journal, state_dir: Path
    ) -> None:
        key = read_key(command.api_key_file)
        self._key = None if key is None else key.get_secret_value()
        environment = engine_environment(os.environ, command, python, self._key)
        config = key_config(command, self._key)
        self._profile = profile
        self._base_url = command.base_url
        self._journal = journal
        self._what = Started(
            argv=command.argv(str(python)),
            environment=environment,
            scratch=state_dir / "work" / secrets.token_hex(8),
            drain_seconds=profile.launch.drain_seconds,
            key_config=(command.api_key_config, config) if command.api_key_config and config else None,
        )
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._reader = PhaseReader()
        self._log = EngineLog(
            sys.stdout.buffer, Redactor(secret_values(environment, self._key)), self._on_line, state_dir
        )
        self._cancelled = threading.Event()
        self._ready = False
        self._at_once = False
        self._stop_signal: signal.Signals | None = None
        self._failure: DraftgateError | None = None
        # Of the start; after a stop that came before it was ready, of the patience with the engine.
        self._deadline: float | None = None

    def run(self, lock: HeldLock) -> ExitCode:
        refuse_if_taken(self._profile.server.host, self._profile.server.port, "server")
        shutil.rmtree(self._what.scratch.parent, ignore_errors=True)
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            # Under nohup a hang-up is ignored, and stays so.
            if handlers[number] is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        try:
            engine = EngineProcess(self._what, lock.descriptor)
            try:
                lock.name_holder(self._profile.name, engine.session)
                self._journal.started(engine.session)
                engine.go(self._log, lambda status: self._events.put(_Ended(status)))
                threading.Thread(target=self._probe, daemon=True).start()
                status = self._follow(engine)
            finally:
                self._cancelled.set()
                left = engine.finish()
                if not left:
                    lock.forget_holder()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if left:
            self._journal.tell(f"could not be ended: {', '.join(f'pid {process.pid}' for process in left)}")
        return self._outcome(status)

    def _follow(self, engine: EngineProcess) -> int:
        """Until the engine has ended; returns its status."""
        self._deadline = time.monotonic() + self._profile.launch.start_timeout_seconds
        while True:
            if self._deadline is not None and time.monotonic() >= self._deadline:
                self._on_deadline(engine)
            try:
                event = self._events.get(timeout=_WAKE_SECONDS)
            except Empty:
                continue
            match event:
                case _Ended(status):
                    return status
                case _Signal(number):
                    self._on_stop(engine, number)
                case _ if self._stopping():
                    pass
                case _Refused(why):
                    what = "the engine refuses to generate"
                    self._fail(engine, EngineFailed(what, where=self._base_url, why=why))
                case _Broken(failure):
                    self._fail(engine, failure)
                case PhaseStarted(Phase.READY):
                    self._ready, self._deadline = True, None
                    # What it said while starting explains no later death.
                    self._log.lines.clear()
                    self._journal.ready()
                case PhaseStarted(phase):
                    self._journal.phase(phase)
                case phases.Progress(done, total):
                    self._journal.progress(done, total)
                case _:
                    assert_never(event)

    def _on_deadline(self, engine: EngineProcess) -> None:
        if self._stopping():
            self._deadline = None
            engine.stop_now()
        else:
            limit = self._profile.launch.start_timeout_seconds
            late = too_slow(limit, self._journal.phase_now, self._log.lines, self._log.place)
            self._fail(engine, late)

    def _stopping(self) -> bool:
        return self._stop_signal is not None or self._failure is not None

    def _on_stop(self, engine: EngineProcess, number: signal.Signals) -> None:
        if self._stopping():
            # Only Ctrl-C: a closing terminal hangs up twice, and another `down` only wants to wait.
            if number is signal.SIGINT and not self._at_once:
                self._at_once = True
                self._journal.tell("ending it at once")
                engine.stop_now()
            return
        self._stop_signal = number
        self._cancelled.set()
        engine.stop()
        if self._ready:
            self._journal.draining(number.name, self._profile.launch.drain_seconds)
        else:
            self._journal.draining(number.name, None)
            self._deadline = time.monotonic() + _START_UP_STOP_SECONDS

    def _fail(self, engine: EngineProcess, failure: DraftgateError) -> None:
        self._failure = failure
        self._cancelled.set()
        engine.stop()
        self._deadline = time.monotonic() + _START_UP_STOP_SECONDS

    def _outcome(self, status: int) -> ExitCode:
        if self._failure is not None:
            raise self._failure
        if self._stop_signal is not None:
            return ExitCode(128 + self._stop_signal)
        raise died(status, self._journal.phase_now, self._log.lines, self._log.place)

    def _probe(self) -> None:
        try:
            ready = await_ready(
                self._base_url,
                self._profile.target.served_name,
                self._key,
                seconds=self._profile.launch.start_timeout_seconds,
                cancelled=self._cancelled,
                healthy=lambda: self._events.put(PhaseStarted(Phase.FIRST_TOKEN)),
            )
        except Refused as refused:
            self._events.put(_Refused(str(refused)))
        else:
            if ready:
                self._events.put(PhaseStarted(Phase.READY))

    def _on_line(self, line: str) -> None:
        # Once it serves, such words are somebody's prompt.
        if not self._ready and (failure := cannot_listen(line, self._log.place)):
            self._events.put(_Broken(failure))
        for event in self._reader.feed(line):
            self._events.put(event)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(_Signal(signal.Signals(number)))
