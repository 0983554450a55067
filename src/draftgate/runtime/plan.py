"""What `draftgate up` starts: two command lines, and what they will answer at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.profile.model import Profile


@dataclass(frozen=True)
class Plan:
    """What `up` would start.

    Attributes:
        sidecar: None where none is wanted.
    """

    profile: Profile
    base_url: str
    launcher: tuple[str, ...]
    sidecar: tuple[str, ...] | None
    wait_lock_seconds: float

    @property
    def sidecar_url(self) -> str | None:
        where = self.profile.sidecar
        return None if self.sidecar is None else f"http://{where.host}:{where.port}"


def plan(
    name: str,
    sets: Sequence[str],
    profile: Profile,
    base_url: str,
    *,
    sidecar: bool = True,
    wait_lock_seconds: float = 0.0,
) -> Plan:
    """What `up` will start. Both processes read the profile anew, by ``name`` and ``sets`` as given."""
    # Safe path: a folder named draftgate where the user stands is not our package.
    draftgate = (sys.executable, "-P", "-m", "draftgate")
    options = tuple(word for text in sets for word in ("--set", text))
    wait = ("--wait-lock", f"{wait_lock_seconds:g}") if wait_lock_seconds else ()
    return Plan(
        profile=profile,
        base_url=base_url,
        launcher=(*draftgate, "launch", name, *options, *wait),
        sidecar=(*draftgate, "sidecar", name, *options) if sidecar else None,
        wait_lock_seconds=wait_lock_seconds,
    )
