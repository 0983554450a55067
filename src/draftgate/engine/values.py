"""What may stand after a flag, and under a key of the speculative config: counts, types and names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import assert_never

from draftgate.engine.contract import Flag, Kind

# vLLM: 1k and 1.5k are decimal, 1K is binary; SGLang: 1k, 1M are decimal, 1Ki is binary.
_SIZES = {
    "K": re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]"),
    "Ki": re.compile(r"\d+(\.\d+)?[kMGT]|\d+[KMGT]i"),
}
_NOTHING = ("", "None", "none")


def counts(flag: Flag) -> tuple[int, int | None]:
    """The least and the most values that a flag takes; None for as many as there are."""
    if flag.kind is Kind.SWITCH:
        return 0, 0
    match flag.nargs:
        case None:
            return 1, 1
        case "?":
            return 0, 1
        case "*":
            return 0, None
        case "+":
            return 1, None
        case _:
            return int(flag.nargs), int(flag.nargs)


def count_text(name: str, flag: Flag) -> str:
    if flag.kind is Kind.SWITCH:
        return f"{name} stands alone, without a value"
    wanted = "a value" if flag.nargs is None else "values" if flag.nargs == "+" else f"{flag.nargs} values"
    return f"{name} needs {wanted}; what begins with a dash is not one"


def type_problem(flag: Flag, text: str) -> str | None:
    """What a value must be and is not, or None."""
    match flag.kind:
        case Kind.TEXT | Kind.SWITCH | Kind.BOOLEAN:
            return None
        case Kind.INTEGER:
            return None if _converts(int, text) else "needs an integer"
        case Kind.SIZE:
            size = _SIZES[flag.binary or "K"].fullmatch(text.strip())
            automatic = flag.auto and text.strip().lower() == "auto"
            return None if size or automatic or _converts(int, text) else "needs an integer, 8192 or 8k"
        case Kind.NUMBER:
            return None if _converts(float, text) else "needs a number"
        case Kind.JSON:
            if not _converts(json.loads, text):
                return "needs JSON"
            plain = flag.object_only and not isinstance(json.loads(text), dict)
            return "needs a JSON object" if plain else None
        case _:
            assert_never(flag.kind)


def _converts(convert: object, text: str) -> bool:
    try:
        convert(text)  # type: ignore[operator]
    except (ValueError, RecursionError):
        return False
    return True


def _converted(flag: Flag, text: str) -> str | int | float:
    match flag.kind:
        case Kind.INTEGER:
            return int(text)
        case Kind.NUMBER:
            return float(text)
        case _:
            return text


def among(value: object, names: Sequence[object], folds_case: bool) -> bool:
    if folds_case and isinstance(value, str):
        return value.lower() in {str(name).lower() for name in names}
    return value in names


def is_json(item: object, types: Sequence[str]) -> bool:
    match item:
        case None:
            name = "null"
        case bool():
            name = "boolean"
        case int():
            name = "number" if "integer" not in types else "integer"
        case float():
            name = "number"
        case str():
            name = "string"
        case list():
            name = "array"
        case _:
            name = "object"
    return name in types or "any" in types


def short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


def is_known(flag: Flag, text: str, plugins: bool) -> bool:
    """Whether a value of the right type is one that the engine knows.

    Args:
        plugins: the command loads a plugin with parsers of its own.
    """
    if flag.choices is not None:
        return among(_converted(flag, text), flag.choices, flag.folds_case)
    if flag.known is None or text in _NOTHING or among(text, flag.known, flag.folds_case):
        return True
    named_elsewhere = any(mark in text for mark in "./:") or (plugins and flag.names[0].endswith("-parser"))
    return flag.open and named_elsewhere
