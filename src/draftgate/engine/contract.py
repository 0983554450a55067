"""What a pinned engine knows: its flags, the keys of its speculative config, the variables it reads.

Contracts are data, made by ``python -m tools.contracts`` from the engine's own parser and source; see
`draftgate.engine.extraction`. `draftgate.engine.conformity` holds a command against one.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from draftgate.errors import UnknownName
from draftgate.profile.catalogue import nearest

CONTRACTS = Path(__file__).parent / "contracts"


class Kind(enum.StrEnum):
    """What one value of a flag must be."""

    SWITCH = "switch"  # takes none
    TEXT = "text"
    INTEGER = "integer"
    SIZE = "size"  # an integer, with k, M, G … if wanted
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        names: every spelling, the first one first.
        negations: spellings that switch it off.
        nargs: argparse's: None for one value, a number, ``?``, ``*`` or ``+``.
        nullable: ``None`` and an empty text stand for no value.
        auto: of a size, ``auto`` is a value too.
        binary: of a size, how 1,024 is written: ``K`` (vLLM) or ``Ki`` (SGLang).
        object_only: of JSON, only an object will do.
        choices: checked by the engine's parser.
        known: listed by the engine, but looked up only later, while it starts.
        open: a plugin or the path of a class may stand there beside ``known``.
        folds_case: small and capital letters are one.
        default: plain data; a settings object as ``{"object": CLASS}``; None also where there is none.
    """

    names: tuple[str, ...]
    kind: Kind
    negations: tuple[str, ...] = ()
    nargs: int | str | None = None
    nullable: bool = False
    auto: bool = False
    binary: str | None = None
    object_only: bool = False
    choices: tuple[str | int | float, ...] | None = None
    known: tuple[str, ...] | None = None
    open: bool = False
    folds_case: bool = False
    required: bool = False
    deprecated: bool = False
    default: object = None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of vLLM's ``--speculative-config``.

    Attributes:
        types: JSON's names of types; ``any`` where the source does not tell.
    """

    types: tuple[str, ...]
    choices: tuple[str, ...] | None = None
    folds_case: bool = False


@dataclass(frozen=True)
class Contract:
    """What one engine at one version knows.

    Attributes:
        version: None of an installed package without metadata.
        companions: other packages whose variables count, with their versions; None for one not looked into.
        positionals: how many words may stand before the first flag.
        flags: by every spelling, negations included.
        speculative_keys: None where the engine has no such flag.
        variables: each with the file that reads it.
        boolean_variables: those of them that are passed over, for the default, where they are no boolean.
        unverified: why this is not the build's own contract, but another version's; None where it is.
    """

    pin: str
    engine: str
    distribution: str
    version: str | None
    companions: Mapping[str, str | None]
    positionals: int
    flags: Mapping[str, Flag]
    speculative_keys: Mapping[str, Key] | None
    variables: Mapping[str, str]
    boolean_variables: frozenset[str] = frozenset()
    unverified: str | None = None

    @property
    def title(self) -> str:
        return f"{self.distribution} {self.version or '(version unknown)'}"


@cache
def load_contract(pin: str) -> Contract:
    """The committed contract of a pin.

    Raises:
        UnknownName: there is none.
    """
    file = CONTRACTS / f"{pin}.json"
    if not file.is_file():
        known = sorted(file.stem for file in CONTRACTS.glob("*.json"))
        near = nearest(pin, known)
        raise UnknownName(
            f"there is no contract for {pin!r}",
            why=f"known are: {', '.join(known)}",
            next_step=f"use {near}" if near else None,
        )
    return read_contract(json.loads(file.read_text(encoding="utf-8")))


def read_contract(document: Mapping[str, Any]) -> Contract:
    """A contract from its document, as `extraction.package.extract` gives it."""
    flags = {}
    for entry in document["flags"]:
        flag = _flag(entry)
        flags.update(dict.fromkeys((*flag.names, *flag.negations), flag))
    keys = document["speculative_config"]
    return Contract(
        pin=document["pin"],
        engine=document["engine"],
        distribution=document["distribution"],
        version=document["version"],
        companions=MappingProxyType(document["companions"]),
        positionals=document["positionals"],
        flags=MappingProxyType(flags),
        speculative_keys=None if keys is None else MappingProxyType({k: _key(v) for k, v in keys.items()}),
        variables=MappingProxyType(document["variables"]),
        # A contract that an older draftgate kept of an own build has none.
        boolean_variables=frozenset(document.get("boolean_variables", ())),
    )


def _flag(entry: Mapping[str, Any]) -> Flag:
    return Flag(**{**_frozen(entry), "kind": Kind(entry["kind"])})


def _key(entry: Mapping[str, Any]) -> Key:
    return Key(**_frozen(entry))


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
