"""Plain data as YAML that people can read; text that is not a plain word is quoted as JSON quotes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

_WORD = re.compile(r"([A-Za-z_/]|\./)[\w./-]*|\.")  # .5 and .inf are numbers
# What YAML takes only escaped, and JSON as it is.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_OTHER = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})

Value = str | int | float | bool | None | Sequence["Value"] | Mapping[str, "Value"]


def as_yaml(value: Mapping[str, Value]) -> str:
    """A document in block style; empty mappings and sequences are written as ``{}`` and ``[]``."""
    return "\n".join(_mapping(value, 0)) + "\n"


def _mapping(value: Mapping[str, Value], depth: int) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{'  ' * depth}{_text(key)}:", item, depth)


def _sequence(value: Sequence[Value], depth: int) -> Iterator[str]:
    for item in value:
        if isinstance(item, Mapping) and item:
            first, *rest = _mapping(item, depth + 1)
            yield f"{'  ' * depth}- {first.lstrip()}"
            yield from rest
        else:
            # A sequence in a sequence too.
            yield f"{'  ' * depth}- {_scalar(item)}"


def _entry(head: str, item: Value, depth: int) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        yield head
        yield from _mapping(item, depth + 1)
    elif isinstance(item, Sequence) and not isinstance(item, str) and item:
        yield head
        yield from _sequence(item, depth + 1)
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(item: Value) -> str:
    # In flow style JSON is YAML.
    return _text(item) if isinstance(item, str) else _json(item)


def _text(text: str) -> str:
    plain = _WORD.fullmatch(text) and text.lower() not in _OTHER
    return text if plain else _json(text)


def _json(item: Value) -> str:
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(item, ensure_ascii=False))
