"""The engine's environment: what it inherits, what is taken away, what the profile sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from draftgate.engine.command import EngineCommand

# They would mix draftgate's interpreter, or a folder of the user's, into the engine's.
_INTERPRETER = frozenset({"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "CONDA_PREFIX"})
# An engine runs code from packages and, where allowed, from models: it gets no secret that it has no use for.
# Object stores' keys (AWS_SECRET_ACCESS_KEY and the like) do not end so: engines load weights with them.
_SECRET_ENDINGS = ("_API_KEY", "_TOKEN", "_PASSWORD", "_SECRET")
# A shorter value is a word ("none", "true"), and masking it would spoil the log.
_SHORTEST_SECRET = 8
_MODEL_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN"})


def engine_environment(
    inherited: Mapping[str, str], command: EngineCommand, python: Path, api_key: str | None
) -> dict[str, str]:
    """The whole environment of the engine.

    Args:
        python: the engine's interpreter; its folder leads PATH, for the ninja that kernels are built with.
        api_key: goes where the engine reads it; an inherited key never does, since nobody here would know it.
    """
    kept = {name: value for name, value in inherited.items() if not _is_dropped(name, command)}
    kept["PATH"] = f"{python.parent}:{inherited.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    kept |= command.environment()
    if api_key is not None and command.api_key_variable is not None:
        kept[command.api_key_variable] = api_key
    return kept


def key_config(command: EngineCommand, api_key: str | None) -> str | None:
    """The YAML file that ``command.api_key_config`` is to name; None where no key goes that way."""
    if api_key is None or command.api_key_config is None:
        return None
    # JSON is YAML, whatever is in the key.
    return json.dumps({"api-key": api_key}) + "\n"


def secret_values(environment: Mapping[str, str], api_key: str | None) -> tuple[str, ...]:
    """What no log may show: the key, and what of the engine's environment is named like a secret."""
    named = (
        value
        for name, value in environment.items()
        if name.endswith((*_SECRET_ENDINGS, "_ACCESS_KEY")) and len(value) >= _SHORTEST_SECRET
    )
    return (*named, *((api_key,) if api_key else ()))


def _is_dropped(name: str, command: EngineCommand) -> bool:
    return (
        name in _INTERPRETER
        or name in command.stripped
        or name.startswith("DRAFTGATE_")
        or (name.endswith(_SECRET_ENDINGS) and name not in _MODEL_HUB_TOKENS)
    )
