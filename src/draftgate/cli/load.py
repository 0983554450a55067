"""The one way in which verbs turn a profile's name into a checked profile and its command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftgate.data import data_root
from draftgate.engine.adapter import command, engine_faults, mismatches, pin_of
from draftgate.engine.command import EngineCommand
from draftgate.engine.conformity import Mismatch
from draftgate.engine.pins import Pin
from draftgate.errors import Fault, ProfileError
from draftgate.profile.catalogue import Catalogue
from draftgate.profile.loader import Resolved, resolve
from draftgate.profile.model import Profile


@dataclass(frozen=True)
class Loaded:
    """A profile that passed every check that needs no machine."""

    resolved: Resolved
    pin: Pin
    command: EngineCommand

    @property
    def profile(self) -> Profile:
        return self.resolved.profile

    def fault(self, mismatch: Mismatch) -> Fault:
        """What the pin does not know, as a fault of whoever says it."""
        origin = self.resolved.origin(mismatch.source)
        said_by = origin.name if origin else f"{self.profile.name}.toml"
        what = f"{mismatch.name}: {mismatch.what} ({self.pin.engine} {self.pin.version})"
        return Fault(mismatch.source, said_by, what, mismatch.nearest)


def catalogue() -> Catalogue:
    """Own folders first (``DRAFTGATE_PROFILE_PATH``), then the profiles that come along."""
    own = [Path(text) for text in os.environ.get("DRAFTGATE_PROFILE_PATH", "").split(os.pathsep) if text]
    return Catalogue((*own, data_root() / "profiles"))


def load(name: str, sets: Sequence[str] = ()) -> Loaded:
    """Load profile ``name`` with the environment's and the options' values on top.

    Raises:
        UnknownName, ProfileError: see `draftgate.profile.loader.resolve`; also where the pinned engine does
            not know a flag, a value or a variable.
    """
    resolved = resolve(
        name, catalogue(), environ=os.environ, cwd=Path.cwd(), sets=sets, engine_faults=engine_faults
    )
    pin = pin_of(resolved.profile)
    loaded = Loaded(resolved, pin, command(resolved.profile, pin))
    unknown = tuple(loaded.fault(one) for one in mismatches(loaded.command))
    if unknown:
        raise ProfileError(name, unknown)
    return loaded
