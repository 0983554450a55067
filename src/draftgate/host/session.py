"""An engine's session: everything that one launch started, told apart from strangers.

A session's number is taken only as long as a process of it lives, and the record that names it may lie in a
folder that everybody can write. So what is ended must carry the launch's own mark: in its environment, which
descendants inherit even where they leave the session, or in its working folder, since engines write their
title (``VLLM::EngineCore``) over their environment.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftgate.host.processes import (
    Process,
    ProcessIdentity,
    end_all,
    environment_variable,
    find,
    processes,
    working_folder,
)

LAUNCH_ID = "DRAFTGATE_LAUNCH_ID"
ORPHAN_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Session:
    """One launch's processes.

    Attributes:
        leader: the guard; its pid is the session's number.
        launch_id: value of ``DRAFTGATE_LAUNCH_ID`` in their environment, and name of their working folder.
    """

    leader: ProcessIdentity
    launch_id: str

    def members(self) -> tuple[Process, ...]:
        """Its live processes, the leader included; none for a session of another boot or pid namespace."""
        if not self.leader.is_here():
            return ()
        holder = find(self.leader.pid)
        number_is_ours = holder is None or holder.start_ticks == self.leader.start_ticks
        return tuple(process for process in processes() if self._owns(process, number_is_ours))

    def _owns(self, process: Process, number_is_ours: bool) -> bool:
        if process.start_ticks < self.leader.start_ticks:
            return False
        mark = environment_variable(process.pid, LAUNCH_ID)
        if mark is None:
            # Another user's: not ours to end, but it must not be overlooked either.
            return number_is_ours and process.session == self.leader.pid
        return mark == self.launch_id or self.launch_id in (working_folder(process.pid) or "")

    def end(self, grace_seconds: float) -> tuple[Process, ...]:
        """End what lives of it, as after the death of its guard; returns what could not be ended."""
        return end_all(self.members, grace_seconds)
