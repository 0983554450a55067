"""One action of an argparse parser → plain data, and one type hint → what JSON may stand there."""

from __future__ import annotations

import argparse
import contextlib
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import TypeGuard

_SCALARS = (bool, int, float, str)


class Leak(Exception):
    """Something that was not there (a placeholder) decides a flag: the contract would be a guess."""


def describe(action: argparse.Action, names: Iterable[str], deprecated: bool = False) -> dict[str, object]:
    """An action as a contract's flag; keys that say nothing are left out.

    ``kind`` is what one value must be: text, json, number, size (an integer with an optional k, M, G …),
    integer, boolean or, for a flag that takes none, switch. It is found by asking the action's own type
    function, whose name alone would not tell.

    Raises:
        Leak: a default or a choice is not plain data.
    """
    every = sorted(names, key=lambda name: (not name.startswith("--"), name))
    negative = {str(name) for name in getattr(action, "negative_option_strings", ())}
    negative |= {name for name in every if _is_negation(action, name)}
    flag: dict[str, object] = {"names": [name for name in every if name not in negative]}
    if negative:
        flag["negations"] = sorted(negative)
    flag["kind"] = "switch" if action.nargs == 0 else _kind(action.type)
    if action.nargs not in (None, 0):
        flag["nargs"] = action.nargs
    if action.nargs != 0 and _is_none(action.type) and (action.choices is None or None in action.choices):
        flag["nullable"] = True
    if flag["kind"] == "size":
        # 1,024 is written 1K by vLLM and 1Ki by SGLang; 1,000 is 1k for both.
        flag["binary"] = "K" if _accepts(action.type, "1K") else "Ki"
        if _accepts(action.type, "auto"):
            flag["auto"] = True
    if flag["kind"] == "json" and not (_accepts(action.type, "1") or _accepts(action.type, "[]")):
        flag["object_only"] = True
    if action.choices is not None:
        flag["choices"] = _choices(action.choices, action)
        if _folds_case(action.type, action.choices):
            flag["folds_case"] = True
    if action.required:
        flag["required"] = True
    if deprecated or getattr(action, "deprecated", False) or "Deprecated" in type(action).__name__:
        flag["deprecated"] = True
    default = _plain(action.default, action)
    if default is not None and action.default != argparse.SUPPRESS:
        flag["default"] = default
    return flag


@dataclass(frozen=True)
class Named:
    """Values that a type lists by name, and whether other texts may stand there too.

    An enum's members are looked up by name in capitals, whatever was typed; ``auto`` stands for none of them.
    """

    values: tuple[str, ...]
    other: bool
    folds_case: bool


def named_values(hint: object) -> Named:
    hints = list(_flat(hint))
    enums = [each for each in hints if _is_enum(each)]
    values = {name for each in enums for name in each.__members__} | ({"auto"} if enums else set())
    values |= {value for value in _literals(hints) if isinstance(value, str)}
    return Named(tuple(sorted(values)), other=str in hints, folds_case=bool(enums))


def json_value(hint: object) -> dict[str, object]:
    """What JSON may stand where a field has this type: its ``types``, and their names as ``choices``."""
    hints = [each for each in _flat(hint) if typing.get_origin(each) is not typing.Literal]
    kinds = {_json_type(each) for each in (*hints, *map(type, _literals(_flat(hint))))}
    described: dict[str, object] = {"types": sorted(kinds)}
    named = named_values(hint)
    if named.values and not named.other:
        described["choices"] = list(named.values)
        if named.folds_case:
            described["folds_case"] = True
    return described


def _literals(hints: Iterable[object]) -> list[object]:
    return [
        value
        for each in hints
        if typing.get_origin(each) is typing.Literal
        for value in typing.get_args(each)
    ]


def _is_enum(hint: object) -> TypeGuard[type[enum.Enum]]:
    """An enum that is looked up by name; numbers with names are written as numbers."""
    return isinstance(hint, type) and issubclass(hint, enum.Enum) and not issubclass(hint, int)


def _flat(hint: object) -> Iterable[object]:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        yield from _flat(typing.get_args(hint)[0])
    elif origin in (typing.Union, types.UnionType):
        for each in typing.get_args(hint):
            yield from _flat(each)
    else:
        yield hint


def _json_type(hint: object) -> str:
    if hint is type(None):
        return "null"
    origin = typing.get_origin(hint) or hint
    for python, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if origin is python:
            return name
    if origin in (list, tuple, set):
        return "array"
    if _is_enum(origin):
        return "string"
    return "object" if isinstance(origin, type) else "any"


def _is_negation(action: argparse.Action, name: str) -> bool:
    return isinstance(action, argparse.BooleanOptionalAction) and name.startswith("--no-")


def _kind(convert: object) -> str:
    """The narrowest kind whose sample the type function takes."""
    if convert is None or _accepts(convert, "a text"):
        return "text"
    if "parse_dataclass" in _names_within(convert) or _accepts(convert, "{}") or _accepts(convert, "[]"):
        return "json"
    for sample, kind in (("1.5", "number"), ("1k", "size"), ("2", "integer"), ("true", "boolean")):
        if _accepts(convert, sample):
            return kind
    raise Leak(f"a type function takes none of the samples: {convert!r}")


def _names_within(function: object) -> set[str]:
    """The names of a function and of those it closes over: converters are wrapped in one another."""
    names = {getattr(function, "__name__", "")}
    for cell in getattr(function, "__closure__", None) or ():
        if callable(cell.cell_contents):
            names |= _names_within(cell.cell_contents)
    return names


def _accepts(convert: object, sample: str) -> bool:
    if not callable(convert):
        return convert is None
    with contextlib.suppress(Exception):
        convert(sample)
        return True
    return False


def _is_none(convert: object) -> bool:
    with contextlib.suppress(Exception):
        return callable(convert) and convert("None") is None
    return False


def _choices(choices: Iterable[object], action: argparse.Action) -> list[object]:
    plain = [_plain(choice, action) for choice in choices if choice is not None]
    if any(not isinstance(choice, _SCALARS) for choice in plain):
        raise Leak(f"choices of {action.option_strings}: {plain}")
    return sorted(plain, key=lambda choice: (str(type(choice)), choice))


def _folds_case(convert: object, choices: Iterable[object]) -> bool:
    words = [choice for choice in choices if isinstance(choice, str) and choice.upper() != choice]
    if not callable(convert) or convert is str or not words:
        return False
    with contextlib.suppress(Exception):
        return all(convert(word.upper()) in choices for word in words)
    return False


def _plain(value: object, action: argparse.Action) -> object:
    """Plain data; a settings object as its class's name, since what it holds has flags of its own."""
    if value is None or (isinstance(value, _SCALARS) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): _plain(item, action) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, action) for item in value), key=str)
    if isinstance(value, list | tuple):
        return [_plain(item, action) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"object": type(value).__name__}
    raise Leak(f"default of {action.option_strings}: {value!r}")
