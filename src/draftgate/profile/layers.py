"""Layers: reading one TOML file into leaves, and laying leaves over each other with their origin kept.

A file holds ``extends`` (names of layers, ordered, later wins), ``unset`` (paths that it takes away from
what it extends), any keys of a profile, and tables ``[line.NAME.…]`` with keys that hold on that line of pins
alone, since a flag or variable of one version need not exist in another. Lists replace; tables merge by key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, Comment, InlineTable, Item, Whitespace

from draftgate.errors import Fault

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Who says a value.

    Attributes:
        name: the file as users know it (``layers/cpu.toml``), an environment variable, or ``--set``.
        folder: what a relative path in the value is relative to.
        comment: the comment that stands at the value, which gives its reason.
    """

    name: str
    folder: Path
    comment: str | None = None


@dataclass(frozen=True)
class Entry:
    value: object
    origin: Origin


Leaves = Mapping[KeyPath, Entry]


@dataclass(frozen=True)
class Layer:
    """One file, read but not yet laid over others.

    Attributes:
        path: None of what is no file.
    """

    name: str
    extends: tuple[str, ...]
    unset: tuple[KeyPath, ...]
    leaves: Leaves
    faults: tuple[Fault, ...]
    path: Path | None = None


# Tables whose keys are an engine's names, with dots of their own (vLLM's --compilation-config.mode).
FREE_TABLES = ("env", "engine_flags")
# One more, within another table; its keys have no dots.
_FREE = (*FREE_TABLES, "engine_keys")


def dotted(path: KeyPath) -> str:
    return ".".join(key or '""' for key in path)


def key_path(text: str) -> KeyPath:
    """The path that is written so; below a free table all the rest is one key."""
    table, _, rest = text.partition(".")
    return (table, rest) if rest and table in FREE_TABLES else tuple(text.split("."))


def read_layer(text: str, name: str, folder: Path) -> Layer:
    """Parse one file. What is wrong with it is in the layer's ``faults``; nothing is raised."""
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        return Layer(name, (), (), {}, (Fault("(file)", name, f"is not TOML: {error}"),))
    leaves = dict(_leaves(document, (), name, folder))
    faults: list[Fault] = []
    for path in [path for path, entry in leaves.items() if entry.value == {} and not _is_free(path)]:
        what = f'{{}} says nothing: unset = ["{dotted(path)}"] takes away what layers below say'
        faults.append(Fault(dotted(path), name, what))
        del leaves[path]
    lists: dict[str, tuple[str, ...]] = {}
    for key in ("extends", "unset"):
        entry = leaves.pop((key,), None)
        value = [] if entry is None else entry.value
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            faults.append(Fault(key, name, "must be a list of strings"))
            value = []
        lists[key] = tuple(value)
    unset = tuple(key_path(path) for path in lists["unset"])
    return Layer(name, lists["extends"], unset, leaves, tuple(faults))


def _leaves(
    table: Container | AbstractTable, prefix: KeyPath, name: str, folder: Path
) -> Iterator[tuple[KeyPath, Entry]]:
    body = table.body if isinstance(table, Container) else table.value.body
    above: list[str] = []
    for key, item in body:
        if isinstance(item, Comment):
            above.append(_comment_text(item))
            continue
        if key is None:
            # A blank line ends a comment's block: it belongs to what stands right above a key.
            if isinstance(item, Whitespace) and "\n" in item.s:
                above.clear()
            continue
        path = (*prefix, key.key)
        # The head of a table alone says nothing; {} is a value, and a wrong one.
        if isinstance(item, AbstractTable) and (
            item.value or not (isinstance(item, InlineTable) or _is_free(path))
        ):
            yield from _leaves(item, path, name, folder)
        else:
            beside = _comment_text(item)
            comment = " ".join(filter(None, [*above, beside])) or None
            yield path, Entry(_plain(item), Origin(name, folder, comment))
        above.clear()


def _is_free(path: KeyPath) -> bool:
    return any(key in _FREE for key in path[:-1])


def _comment_text(item: Item) -> str:
    return item.trivia.comment.lstrip("#").strip()


def _plain(item: Item) -> object:
    return item.unwrap() if hasattr(item, "unwrap") else item


def lay_over(below: Leaves, layer: Layer, line: object) -> tuple[dict[KeyPath, Entry], list[Fault]]:
    """``layer`` laid over ``below``: first its ``unset``, then its own leaves, then those of ``line``."""
    merged = dict(below)
    faults = []
    always = {path: entry for path, entry in layer.leaves.items() if path[0] != "line"}
    on_line = {path[2:]: entry for path, entry in layer.leaves.items() if path[:2] == ("line", line)}
    for path in layer.unset:
        gone = [known for known in merged if known[: len(path)] == path]
        if not gone:
            faults.append(Fault("unset", layer.name, f"{dotted(path)!r} is not set by any layer below"))
        for known in gone:
            del merged[known]
    for path, entry in (always | on_line).items():
        # A value where a table stood, or a table where a value stood, replaces it whole.
        for known in [k for k in merged if k != path and (k[: len(path)] == path or path[: len(k)] == k)]:
            del merged[known]
        merged[path] = entry
    return merged, faults


def nested(leaves: Leaves) -> dict[str, object]:
    """The leaves as tables within tables."""
    root: dict[str, object] = {}
    for path, entry in leaves.items():
        table = root
        for key in path[:-1]:
            step = table.setdefault(key, {})
            assert isinstance(step, dict)  # noqa: S101 - lay_over keeps values and tables apart
            table = step
        table[path[-1]] = entry.value
    return root
