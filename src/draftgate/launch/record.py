"""What a launch tells about itself in the state folder, for `draftgate status` and `down`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from draftgate.errors import DraftgateError
from draftgate.host.files import replace_file
from draftgate.host.processes import ProcessIdentity
from draftgate.host.session import Session
from draftgate.launch.phases import Phase

FILE_NAME = "launch.json"


class End(BaseModel):
    """How a launch ended.

    Attributes:
        exit_code: of the launcher.
        what, where, why, next_step: as in `DraftgateError`; redacted.
    """

    model_config = ConfigDict(frozen=True)

    exit_code: int
    what: str
    where: str | None = None
    why: str | None = None
    next_step: str | None = None

    @classmethod
    def by(cls, error: DraftgateError) -> End:
        return cls(
            exit_code=error.exit_code,
            what=error.what,
            where=error.where,
            why=error.why,
            next_step=error.next_step,
        )


class LaunchRecord(BaseModel):
    """Times are seconds since the epoch.

    Attributes:
        session: None until the guard runs.
        progress: done and total, of shards or graphs, within the phase.
        stop_seconds: from SIGTERM to the launcher until nothing of the engine can be left.
    """

    model_config = ConfigDict(frozen=True)

    profile: str
    base_url: str
    launcher: ProcessIdentity
    session: Session | None = None
    started_at: float
    phase: Phase
    since: float
    progress: tuple[int, int] | None = None
    ready_at: float | None = None
    stop_seconds: float
    end: End | None = None

    def active(self) -> bool:
        """Whether the launcher lives, or its guard, which may still be ending the engine."""
        return self.launcher.alive() or (self.session is not None and self.session.leader.alive())

    def write(self, state_dir: Path) -> None:
        replace_file(state_dir / FILE_NAME, self.model_dump_json(indent=2) + "\n")


def read_launch(state_dir: Path) -> LaunchRecord | None:
    """The last launch in this state folder; None where there was none, or its record is not readable."""
    try:
        return LaunchRecord.model_validate_json((state_dir / FILE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
