"""Where a launch stands, told to the user on standard error and to `draftgate status` in the state folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from draftgate.host.processes import own_identity
from draftgate.host.session import Session
from draftgate.launch.phases import ORDER, Phase
from draftgate.launch.record import End, LaunchRecord, read_launch
from draftgate.profile.model import Profile


class Journal:
    """The record of one launch, and its lines on standard error."""

    def __init__(self, profile: Profile, base_url: str, state_dir: Path, stop_seconds: float) -> None:
        self._state_dir = state_dir
        self._begun = time.monotonic()
        self._spent: list[tuple[Phase, float]] = []
        self._phase_begun = self._begun
        other = read_launch(state_dir)
        # Until we hold the lock, a launch that runs here keeps its record.
        self._ours = other is None or not other.active()
        now = time.time()
        self._record = LaunchRecord(
            profile=profile.name,
            base_url=base_url,
            launcher=own_identity(),
            started_at=now,
            phase=Phase.LOCK,
            since=now,
            stop_seconds=stop_seconds,
        )
        self._write()

    @property
    def phase_now(self) -> Phase:
        return self._record.phase

    def tell(self, text: str) -> None:
        """One line for the user, unlike any of the engine's."""
        try:
            print(f"[draftgate {time.monotonic() - self._begun:6.1f} s] {text}", file=sys.stderr, flush=True)
        except OSError:
            return  # nobody reads it any more

    def started(self, session: Session) -> None:
        self._ours = True
        self._record = self._record.model_copy(update={"session": session})
        self.phase(Phase.IMPORTS)

    def phase(self, phase: Phase) -> None:
        """Enter ``phase``, unless we are past it."""
        if ORDER.index(phase) <= ORDER.index(self._record.phase):
            return
        now = time.monotonic()
        self._spent.append((self._record.phase, now - self._phase_begun))
        self._phase_begun = now
        self._write(phase=phase, since=time.time(), progress=None)
        if phase not in (Phase.READY, Phase.DRAINING):
            self.tell(str(phase))

    def progress(self, done: int, total: int) -> None:
        self._write(progress=(done, total))
        self.tell(f"{self._record.phase}: {done}/{total}")

    def ready(self) -> None:
        self.phase(Phase.READY)
        self._write(ready_at=self._record.since)
        spent = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self._spent if seconds >= 0.05)
        self.tell(f"ready at {self._record.base_url} ({spent})")

    def draining(self, reason: str, seconds: float | None) -> None:
        """``seconds`` for running requests; None where none can run."""
        self.phase(Phase.DRAINING)
        what = (
            "stopping the engine, which was not ready"
            if seconds is None
            else f"running requests get {seconds:g} s"
        )
        self.tell(f"{reason}: {what}; Ctrl-C now ends it at once")

    def ended(self, end: End) -> None:
        if self._ours:
            self._write(phase=Phase.ENDED, since=time.time(), end=end)

    def _write(self, **changes: object) -> None:
        self._record = self._record.model_copy(update=changes)
        if self._ours:
            self._record.write(self._state_dir)
