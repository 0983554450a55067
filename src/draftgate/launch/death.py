"""What is said of an engine that ended, or was not ready in time."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from draftgate.diagnosis.signatures import explain
from draftgate.errors import EngineFailed, TimedOut
from draftgate.launch.phases import Phase

# asyncio's words, in which uvicorn fails; others who find a port taken try the next one.
_CANNOT_BIND = re.compile(r"\[Errno \d+\] error while attempting to bind on address")
_SIGNALS = {int(number): number.name for number in signal.Signals}


def died(status: int, phase: Phase, lines: Sequence[str], log: str) -> EngineFailed:
    """The engine ended by itself.

    Args:
        status: its exit code, or 128 + n for signal n.
        phase: in which it ended.
        lines: the last of its log.
        log: where the log is.
    """
    name = _SIGNALS.get(status - 128)
    how = f"signal {name}" if name else f"exit code {status}"
    when = "while it served" if phase is Phase.READY else f"before it was ready, {phase}"
    diagnosis = explain(lines, status)
    return EngineFailed(
        f"the engine ended with {how} {when}",
        where=log,
        why=diagnosis.cause if diagnosis else None,
        next_step=diagnosis.remedy if diagnosis else None,
    )


def cannot_listen(line: str, log: str) -> EngineFailed | None:
    """The failure that ``line`` tells, if it tells that the address is taken, else None.

    By then nobody else had it at the start. vLLM ends by itself; SGLang's server says so and stays, with its
    scheduler and all its memory.
    """
    if not _CANNOT_BIND.search(line):
        return None
    diagnosis = explain([line], None)
    return EngineFailed(
        "the engine cannot listen, and would never serve",
        where=log,
        why=diagnosis.cause if diagnosis else line.strip(),
        next_step=diagnosis.remedy if diagnosis else None,
    )


def too_slow(limit_seconds: float, phase: Phase, lines: Sequence[str], log: str) -> TimedOut:
    """The engine lives, but is not ready; arguments as for `died`."""
    diagnosis = explain(lines, None)
    last = f"its last line: {lines[-1].strip()}" if lines else "it logged nothing"
    remedy = diagnosis.remedy if diagnosis else None
    return TimedOut(
        f"the engine was not ready within {limit_seconds:g} s; it was {phase}",
        where=log,
        why=diagnosis.cause if diagnosis else last,
        next_step=remedy or "give it longer: --set launch.start_timeout_seconds=SECONDS",
    )
