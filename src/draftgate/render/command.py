"""An engine's command as text: words, environment, a shell line, JSON, or a table that explains it."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable
from typing import Any

from draftgate.engine.command import EngineCommand


class Format(enum.StrEnum):
    ARGV = "argv"
    ENV = "env"
    SHELL = "shell"
    JSON = "json"
    COMPOSE = "compose"


def as_argv(command: EngineCommand) -> str:
    """One word a line, as the engine gets them."""
    return "\n".join(command.argv())


def as_env(command: EngineCommand) -> str:
    """``NAME=value`` lines, quoted for a shell."""
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in command.environment().items())


def as_shell(command: EngineCommand) -> str:
    """One command to paste into a shell, a flag a line; the API key is read from its file, not written."""
    unset = [f"-u {name}" for name in command.stripped]
    variables = [f"{name}={shlex.quote(value)}" for name, value in command.environment().items()]
    if command.api_key_file and command.api_key_variable:
        variables.append(f'{command.api_key_variable}="$(cat {shlex.quote(str(command.api_key_file))})"')
    head = " ".join(["env", *unset, *variables, "python", "-m", command.pin.module])
    lines = [head, *(shlex.join(argument.words()) for argument in command.arguments)]
    before = ""
    if command.api_key_file and command.api_key_config:
        # mktemp makes it for this user alone. In YAML's single quotes only the quote itself is doubled.
        key = f"$(sed \"s/'/''/g;q\" {shlex.quote(str(command.api_key_file))})"
        before = f'config=$(mktemp --suffix=.yaml) && printf "api-key: \'%s\'\\n" "{key}" >"$config"\n'
        lines.append(f'{command.api_key_config} "$config"')
    return before + " \\\n  ".join(lines)


def as_json(command: EngineCommand) -> dict[str, Any]:
    return {
        "pin": {"id": command.pin.id, "engine": command.pin.engine.value, "version": command.pin.version},
        "argv": list(command.argv()),
        "env": command.environment(),
        "unset": list(command.stripped),
        "api_key_file": str(command.api_key_file) if command.api_key_file else None,
        "base_url": command.base_url,
    }


def explained(
    command: EngineCommand, origin: Callable[[str], tuple[str, str | None]]
) -> list[tuple[str, str, str, str]]:
    """Rows of word, key, who says it, why; ``origin`` gives the last two for a dotted path."""
    rows = []
    words = [(" ".join(argument.words()), argument.source, argument.reason) for argument in command.arguments]
    words += [(f"{v.name}={v.value}", v.source, v.reason) for v in command.variables]
    for word, source, reason in words:
        said_by, comment = ("draftgate", None) if source == "draftgate" else origin(source)
        rows.append((word, source, said_by, " ".join(filter(None, [comment, reason]))))
    return rows
