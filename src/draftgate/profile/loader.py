"""A name → a whole, typed profile, with the origin of every value; or every fault at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from draftgate.errors import Fault, ProfileError
from draftgate.profile.catalogue import Catalogue, nearest
from draftgate.profile.layers import (
    FREE_TABLES,
    Entry,
    KeyPath,
    Layer,
    Leaves,
    Origin,
    dotted,
    key_path,
    lay_over,
    nested,
)
from draftgate.profile.model import Line, Profile
from draftgate.profile.overrides import from_environment, from_options
from draftgate.profile.rules import broken_rules
from draftgate.profile.secrets import keys_in_clear

# Values that may name a folder or a file; a relative one is relative to whoever says it.
_PATHS: frozenset[KeyPath] = frozenset(
    {("target", "model"), ("drafter", "model"), ("server", "api_key_file"), ("engine", "source")}
)
# Pydantic's words are Python's.
_WORDS = {
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}
_TYPED_BY_FLAG: tuple[KeyPath, ...] = (("engine_flags",), ("speculation", "engine_keys"))
_ANY_FLAG = "must be true, false, a number, a text, or a list of these"
_ALWAYS_LOCAL = ("api_key_file", "source")
_LOCAL_PREFIXES = ("/", "./", "../", "~")


@dataclass(frozen=True)
class Resolved:
    """A profile and where each of its values comes from.

    Attributes:
        leaves: only what layers, variables or options say; everything else is the model's default.
        layers: names, the lowest first.
        left_out: on line custom, what layers say on other lines alone and nobody says here.
    """

    profile: Profile
    leaves: Leaves
    layers: tuple[str, ...]
    left_out: tuple[Fault, ...] = ()

    def origin(self, path: str) -> Origin | None:
        """The origin of the value at a dotted path, or of the first value below it; None for a default."""
        return _origin_of(self.leaves, key_path(path))


def resolve(
    name: str,
    catalogue: Catalogue,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    sets: Iterable[str] = (),
    engine_faults: Callable[[Leaves], Iterable[Fault]] = lambda _: (),
) -> Resolved:
    """Resolve profile ``name`` with everything set on top of it.

    Args:
        environ: variables ``DRAFTGATE_SET__…`` are taken from it.
        cwd: what a relative path in a variable or an option is relative to.
        sets: ``path=value``, as given with ``--set``.
        engine_faults: what the engine refuses; passed in, because engines are a layer above profiles.

    Raises:
        UnknownName: there is no such profile.
        ProfileError: with every fault found, each with its path and origin.
    """
    layers, faults = catalogue.chain(name)
    overrides = [*from_environment(environ, cwd), *from_options(sets, cwd)]
    faults += [fault for layer in overrides for fault in layer.faults]
    leaves: dict[KeyPath, Entry] = {}
    line = _line([*layers, *overrides])
    for layer in [*layers, *overrides]:
        faults += _unknown_lines(layer)
        leaves, found = lay_over(leaves, layer, line)
        faults += found
    secrets = keys_in_clear(leaves)
    faults += secrets
    faults += _nul(leaves)
    faults += _blank(leaves)
    faults += engine_faults(leaves)
    leaves = {path: _absolute(path, entry) for path, entry in leaves.items()}
    profile_name = Path(name).stem if name.endswith(".toml") else name
    tree = nested(leaves) | {"name": profile_name}
    if ("name",) in leaves:
        faults.append(Fault("name", leaves[("name",)].origin.name, "is the file's name; take this key out"))
    # A chain with missing layers would also lack their keys: report the cause, not its echo.
    incomplete = any(fault.path in ("extends", "(file)") for fault in faults)
    try:
        profile = Profile.model_validate(tree)
    except ValidationError as error:
        hidden = {fault.path for fault in secrets}
        faults += [
            fault for fault in _faults(error, leaves, incomplete, profile_name) if fault.path not in hidden
        ]
    else:
        faults += broken_rules(profile, lambda path: _origin_name(leaves, key_path(path), profile_name))
    if faults:
        raise ProfileError(name, tuple(faults))
    left_out = tuple(_left_out(layers, leaves)) if line == Line.CUSTOM else ()
    return Resolved(profile, leaves, tuple(layer.name for layer in layers), left_out)


def _left_out(layers: list[Layer], leaves: Leaves) -> Iterator[Fault]:
    for layer in layers:
        for path in layer.leaves:
            if path[0] == "line" and path[2:] not in leaves:
                yield Fault(dotted(path), layer.name, "counts on its line alone")


def _line(layers: list[Layer]) -> object:
    """The line that the highest layer states: it decides which keys of each layer count."""
    stated = (
        layer.leaves[("engine", "line")].value
        for layer in reversed(layers)
        if ("engine", "line") in layer.leaves
    )
    return next(stated, None)


def _unknown_lines(layer: Layer) -> Iterator[Fault]:
    known = [line.value for line in Line]
    for name in sorted({path[1] if len(path) > 2 else "" for path in layer.leaves if path[0] == "line"}):
        if name not in known:
            path, what = ("line." + name).rstrip("."), f"must be a table [line.NAME], of {', '.join(known)}"
            yield Fault(path, layer.name, what, nearest(name, known))


def _nul(leaves: Leaves) -> Iterator[Fault]:
    """No path, argument or variable can hold a NUL character."""
    for path, entry in leaves.items():
        values = entry.value if isinstance(entry.value, list) else [entry.value]
        if "\0" in path[-1] or any(isinstance(value, str) and "\0" in value for value in values):
            yield Fault(dotted(path), entry.origin.name, "holds a NUL character")


def _blank(leaves: Leaves) -> Iterator[Fault]:
    """An empty path would be the current folder."""
    for path, entry in leaves.items():
        if path in _PATHS and path[-1] in _ALWAYS_LOCAL and not str(entry.value).strip():
            yield Fault(dotted(path), entry.origin.name, "is empty: name a file, or unset it")


def _absolute(path: KeyPath, entry: Entry) -> Entry:
    value = entry.value
    if path not in _PATHS or not isinstance(value, str) or "\0" in value:
        return entry
    if value.startswith(_LOCAL_PREFIXES) or path[-1] in _ALWAYS_LOCAL:
        absolute = Path(os.path.abspath(entry.origin.folder / os.path.expanduser(value)))
        # Not of an interpreter: through its link it would be another environment's.
        return Entry(str(absolute if path[-1] == "source" else absolute.resolve()), entry.origin)
    return entry


def _faults(error: ValidationError, leaves: Leaves, incomplete: bool, profile: str) -> Iterator[Fault]:
    known = {dotted(path): path for path in schema_paths(Profile)}
    said: set[KeyPath] = set()
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        loc = tuple(str(key) for key in detail["loc"])
        path = tuple(key for key in loc if not key.startswith(("function-", "tuple[", "is-instance")))
        origin = _origin_name(leaves, path, profile)
        if detail["type"] == "extra_forbidden":
            siblings = [
                p[len(path) - 1]
                for p in known.values()
                if p[: len(path) - 1] == path[:-1] and len(p) >= len(path)
            ]
            near = nearest(path[-1], siblings)
            full = dotted((*path[:-1], near)) if near else _elsewhere(path[-1], known)
            yield Fault(dotted(path), origin, "there is no such key", full)
        elif detail["type"] == "missing":
            if not incomplete:
                yield Fault(dotted(path), origin, "is missing")
        else:
            what = _WORDS.get(detail["type"], detail["msg"][0].lower() + detail["msg"][1:])
            for table in _TYPED_BY_FLAG:
                if path[: len(table)] == table and len(path) > len(table):
                    path, what = path[: len(table) + 1], _ANY_FLAG
            path = path[:2] if path[0] in FREE_TABLES else path
            # One fault for a value, not one for each type that it could have had.
            if path not in said:
                yield Fault(dotted(path), origin, what)
            said.add(path)


def _elsewhere(key: str, known: Mapping[str, KeyPath]) -> str | None:
    """A known path anywhere that ends in the same word: ``port`` → ``server.port``."""
    return next((text for text, path in known.items() if path[-1] == key), None)


def _origin_of(leaves: Leaves, path: KeyPath) -> Origin | None:
    exact = leaves.get(path)
    if exact is not None:
        return exact.origin
    return next((entry.origin for known, entry in leaves.items() if known[: len(path)] == path), None)


def _origin_name(leaves: Leaves, path: KeyPath, profile: str) -> str:
    """The origin of a path; of its nearest table where the path itself is not set; else the profile."""
    for length in range(len(path), 0, -1):
        origin = _origin_of(leaves, path[:length])
        if origin is not None:
            return origin.name
    return f"{profile}.toml"


def schema_paths(model: type[BaseModel], prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """All paths of a model's keys; a free table (``env``) is one path."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (*prefix, name)
        else:
            yield from schema_paths(section, (*prefix, name))


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``Model`` or ``Model | None``, or None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType):
        return next((found for found in map(section_of, get_args(annotation)) if found), None)
    return None
