"""What a service is made of: a profile, and what says it beside the files that come along. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.engine.contract import Contract
from draftgate.engine.pins import Pin
from draftgate.profile.model import Profile
from draftgate.render.yaml import Value

# Who runs in every container of ours.
USER = 10001
ALL = "0.0.0.0"  # noqa: S104
LOCK = "/run/lock"
KEY = "/run/secrets/api_key"
MODELS = "/models"
# Own profiles, and own models that lie elsewhere.
PROFILES = "/profiles"
OWN_MODELS = "/own"


def literal(text: str) -> str:
    """For Compose, to which a dollar is the beginning of a variable."""
    return text.replace("$", "$$")


def read_only(source: str, target: str) -> dict[str, Value]:
    # Never made by Docker: a folder that is missing would be an empty one, owned by root.
    bind: dict[str, Value] = {"create_host_path": False}
    return {"type": "bind", "source": source, "target": target, "read_only": True, "bind": bind}


@dataclass(frozen=True)
class Mount:
    """A file or a folder of this machine, and where containers see it, read-only."""

    source: str
    target: str

    def volume(self) -> dict[str, Value]:
        return read_only(literal(self.source), literal(self.target))


@dataclass(frozen=True)
class Statements:
    """What says a profile beside the files that come along: what runs in containers reads it anew.

    Attributes:
        files: own profiles and layers, below `PROFILES`.
        variables: ``DRAFTGATE_SET__…``.
        sets: options on top, as given.
    """

    files: tuple[Mount, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    sets: tuple[str, ...] = ()

    def options(self, *, key: bool, places: Sequence[str] = ()) -> list[str]:
        """The sets, and after them what is otherwise in containers, whoever says it."""
        # Every address: in the sandbox's network, where Prometheus and the published ports reach it.
        texts = [*self.sets, *places, f"server.host={ALL}", *([f"server.api_key_file={KEY}"] if key else [])]
        return [word for text in texts for word in ("--set", literal(text))]

    def environment(self) -> dict[str, Value]:
        """For whatever of draftgate runs there."""
        # Stated, since a folder that user 10001 may not write would else mean a lock for each container.
        said: dict[str, Value] = {"DRAFTGATE_LOCK_DIR": f"{LOCK}/draftgate"}
        if self.files:
            said["DRAFTGATE_PROFILE_PATH"] = PROFILES
        return said | {name: literal(value) for name, value in self.variables}


@dataclass(frozen=True)
class Service:
    """One profile and what is known of it.

    Attributes:
        stop_seconds: from SIGTERM until nothing of the engine can be left.
        models: own folders that it serves from.
        places: options that say where those are.
    """

    profile: Profile
    pin: Pin
    contract: Contract
    stop_seconds: float
    statements: Statements = Statements()
    models: tuple[Mount, ...] = ()
    places: tuple[str, ...] = ()
