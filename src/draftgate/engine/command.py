"""An engine's command as a value: what to run, with which environment, and why each word stands there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftgate.engine.pins import Pin


@dataclass(frozen=True)
class Argument:
    """A flag with its value, and the path in the profile that it comes from.

    Attributes:
        flag: with its dashes.
        value: None for a flag that stands alone.
        source: dotted path in the profile, or ``draftgate`` where the tool itself decides.
        reason: why, where the path alone does not tell.
    """

    flag: str
    value: str | None
    source: str
    reason: str | None = None

    def words(self) -> tuple[str, ...]:
        return (self.flag,) if self.value is None else (self.flag, self.value)


@dataclass(frozen=True)
class Variable:
    """One environment variable of the engine; see `Argument` for source and reason."""

    name: str
    value: str
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class EngineCommand:
    """What starts an engine, without secrets and without the interpreter's path.

    Attributes:
        variables: set for the engine.
        stripped: removed from the inherited environment.
        api_key_variable: where the engine reads its API key, if it reads it from the environment.
        api_key_config: the flag that names a YAML file with the key, for an engine that reads it there.
        api_key_file: the file that holds the key, read only when the engine is started.
        base_url: where clients on this machine reach it.
        drain_seconds: the drain limit that the command carries.
    """

    pin: Pin
    arguments: tuple[Argument, ...]
    variables: tuple[Variable, ...]
    stripped: tuple[str, ...]
    api_key_variable: str | None
    api_key_config: str | None
    api_key_file: Path | None
    base_url: str
    drain_seconds: float

    def argv(self, python: str = "python") -> tuple[str, ...]:
        """The whole command, run by ``python`` (the environment's interpreter)."""
        words = (word for argument in self.arguments for word in argument.words())
        return (python, "-m", self.pin.module, *words)

    def environment(self) -> dict[str, str]:
        return {variable.name: variable.value for variable in self.variables}
