"""The one way in which verbs turn a profile's name into a checked profile and its command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftgate.data import data_root
from draftgate.engine.adapter import command, engine_faults, pin_of, refusals
from draftgate.engine.command import EngineCommand
from draftgate.engine.contract import Contract
from draftgate.engine.pins import Pin
from draftgate.errors import Fault, FolderUnusable, ProfileError
from draftgate.profile.catalogue import Catalogue
from draftgate.profile.loader import Resolved, resolve
from draftgate.profile.model import Profile


@dataclass(frozen=True)
class Loaded:
    """A profile that passed every check that needs no machine."""

    resolved: Resolved
    pin: Pin
    contract: Contract
    command: EngineCommand

    @property
    def profile(self) -> Profile:
        return self.resolved.profile

    def fault(self, path: str, what: str, nearest: str | None = None) -> Fault:
        """A fault of whoever says the value at ``path``."""
        origin = self.resolved.origin(path)
        return Fault(path, origin.name if origin else f"{self.profile.name}.toml", what, nearest)

    def refuse(self, profile: Profile) -> None:
        """Nothing, where the engine can do what ``profile``, this one with more known of it, asks for.

        Raises:
            ProfileError: it cannot.
        """
        found = tuple(
            self.fault(one.path, one.what, one.nearest)
            for one in refusals(profile, self.contract, self.command)
        )
        if found:
            raise ProfileError(profile.name, found)


def catalogue() -> Catalogue:
    """Own folders first (``DRAFTGATE_PROFILE_PATH``), then the profiles that come along.

    Raises:
        FolderUnusable: an own folder cannot be read.
    """
    own = [Path(text) for text in os.environ.get("DRAFTGATE_PROFILE_PATH", "").split(os.pathsep) if text]
    for folder in own:
        try:
            os.listdir(folder)
        except OSError as error:
            raise FolderUnusable(
                f"a folder with own profiles cannot be read: {folder}",
                where=f"DRAFTGATE_PROFILE_PATH={os.environ['DRAFTGATE_PROFILE_PATH']}",
                why=error.strerror,
                next_step="name folders that are there and that you can read",
            ) from error
    return Catalogue((*own, data_root() / "profiles"))


def load(name: str, sets: Sequence[str] = ()) -> Loaded:
    """Load profile ``name`` with the environment's and the options' values on top.

    Raises:
        UnknownName, ProfileError: see `draftgate.profile.loader.resolve`; also where the pinned engine does
            not know a flag, a value or a variable, or cannot do two things together.
        EngineMissing: there is no engine at ``engine.source``.
    """
    resolved = resolve(
        name, catalogue(), environ=os.environ, cwd=Path.cwd(), sets=sets, engine_faults=engine_faults
    )
    pin, contract = pin_of(resolved.profile)
    made = command(resolved.profile, pin, contract)
    loaded = Loaded(resolved, pin, contract, made)
    loaded.refuse(resolved.profile)
    if resolved.left_out:
        gone = ", ".join(f"{one.path} ({one.origin})" for one in resolved.left_out)
        print(f"note: of another line, and so left out of an own build: {gone}", file=sys.stderr)
    if contract.unverified is not None:
        print(f"note: {contract.title} is unverified: {contract.unverified}", file=sys.stderr)
    return loaded
