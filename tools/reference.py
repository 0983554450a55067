"""Writes docs/reference/ from the code; a test holds the committed files equal to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel

from draftgate import errors
from draftgate.cli.load import load
from draftgate.diagnosis.signatures import SIGNATURES, Signature
from draftgate.profile.layers import dotted
from draftgate.profile.loader import section_of
from draftgate.profile.model import Profile
from draftgate.settings import Settings
from draftgate.sidecar.reference import reference as metrics_reference

ROOT = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Made by `make docs` from the code: edit that instead. -->\n\n"


def pages() -> dict[str, str]:
    """File name → whole text."""
    return {
        "cli.md": NOTE + cli(),
        "profile.md": NOTE + profile(),
        "settings.md": NOTE + settings(),
        "exit-codes.md": NOTE + exit_codes(),
        "metrics.md": NOTE + metrics_reference(),
        "diagnosis.md": NOTE + diagnosis(),
        "box.md": NOTE + box(),
    }


def cli() -> str:
    # Help is fitted to the terminal; a page has one width.
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "100"
    from typer.main import get_command

    from draftgate.cli.main import app

    parts = ["# Command line\n"]
    for words, command in _commands("draftgate", get_command(app)):
        with command.make_context(words, [], resilient_parsing=True) as context:
            parts.append(f"## `{words}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(f"{words} {name}", child)


def profile() -> str:
    parts = [
        "# Profile keys\n",
        "A profile is a TOML file: `extends` names layers (ordered, later wins), `unset` lists paths that it "
        "takes away from them, and the rest are the keys below. On top of the file come variables "
        "`DRAFTGATE_SET__path__to__key`, then `--set path=value`. Lists replace; tables of an engine's own "
        "names merge by key. *Required* means that some layer must say it.\n",
        "\n".join(_table("", Profile)),
    ]
    for name, field in Profile.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            parts.append("\n".join([f"## `[{name}]`\n", *_table(f"{name}.", section)]))
    return "\n".join(parts)


def _table(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for name, field in model.model_fields.items():
        if section_of(field.annotation) is None and not (prefix == "" and name == "name"):
            default = (
                "*required*"
                if field.is_required()
                else _default(field.get_default(call_default_factory=True))
            )
            yield f"| `{prefix}{name}` | {_type(field)} | {default} | {field.description} |"
    yield ""


def _type(field: Any) -> str:
    schema = _schema_of(field.annotation)
    return schema.replace("|", "\\|")


def _schema_of(annotation: Any) -> str:
    from pydantic import TypeAdapter

    return " or ".join(_words(TypeAdapter(annotation).json_schema()))


def _words(schema: dict[str, Any]) -> list[str]:
    if "anyOf" in schema:
        return [word for choice in schema["anyOf"] for word in _words(choice) if choice.get("type") != "null"]
    if "enum" in schema:
        return [f"`{value}`" for value in schema["enum"]]
    if "const" in schema:
        return [f"`{schema['const']}`"]
    return [{"object": "table", "array": "list", "string": "text"}.get(schema["type"], schema["type"])]


def _default(value: object) -> str:
    if value is None:
        return "the engine decides"
    if isinstance(value, dict):
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def settings() -> str:
    rows = [
        f"| `DRAFTGATE_{name.upper()}` | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["# Settings of the tool\n", "| variable | meaning |\n|---|---|", *rows, ""])


def exit_codes() -> str:
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("\n\n", 1)[1].strip()
    return (
        "# Exit codes\n\n0 is success, 1 a fault of draftgate's own, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM; "
        f"every other code belongs to one kind of error:\n\n```text\n{tree}\n```\n"
    )


BOX = ("vllm-baseline", "vllm-eagle", "sglang", "sglang-eagle", "sglang-eagle-custom")


def box() -> str:
    """What the profiles of the box say, each value once, with the profiles that say it and the reason."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for name in BOX:
        for path, entry in load(name).resolved.leaves.items():
            if path != ("description",):
                row = (dotted(path), _literal(entry.value), entry.origin.comment or "")
                said.setdefault(row, []).append(name)
    parts = [
        "# What the profiles of the box say\n",
        "For the line that they name. `draftgate show PROFILE --explain` prints the same for one profile, "
        "`draftgate render PROFILE --explain` for each word of its command.\n",
        "In reasons, *wiki* is https://github.com/local-inference-lab/rtx6kpro; "
        "`vllm#1` is an issue or pull request of vllm-project/vllm, and so on; a file of a wheel stands with "
        "the wheel's version.\n",
    ]
    for (key, value, why), names in sorted(said.items()):
        whose = "all" if len(names) == len(BOX) else ", ".join(names)
        parts.append(f"- `{key} = {value}` ({whose}). {why}")
    return "\n".join([*parts, ""])


def _literal(value: object) -> str:
    return tomlkit.item(value).as_string()


def diagnosis() -> str:
    head = (
        "# Why engines die\n\n`draftgate launch` holds an engine's last lines against this table, in this "
        "order, and says the first cause that fits. *Seen*: its log lies in the tests, or a test makes it "
        "happen; *read*: in the source that is named; *reported*: by others, where it is said.\n"
    )
    return "\n".join([head, *(_signature(one) for one in SIGNATURES)])


def _signature(signature: Signature) -> str:
    known = f"{signature.grade.value.capitalize()}: {signature.source}."
    cause, remedy = (_shown(text) for text in (signature.cause, signature.remedy))
    return (
        f"## {signature.name}\n\n```text\n{signature.pattern.pattern}\n```\n\nCause: {cause}.\n\n"
        f"What to do: {remedy}.\n\n{known}\n"
    )


def _shown(text: str) -> str:
    """What the log fills in, in capitals."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), text)


def main() -> None:
    ROOT.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
