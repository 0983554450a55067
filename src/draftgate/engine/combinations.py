"""What an engine knows word by word and cannot do together: rules as data, in combinations.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from draftgate.engine.command import EngineCommand
from draftgate.engine.contract import Contract
from draftgate.errors import Fault
from draftgate.metrics.rules import release
from draftgate.profile.model import Profile

_FILE = Path(__file__).with_name("combinations.toml")


@dataclass(frozen=True)
class Stated:
    """A value in a command or a profile, and the path in the profile that it comes from."""

    value: str
    path: str


@dataclass(frozen=True)
class Combination:
    """One rule; its attributes are the keys of combinations.toml, which explains them.

    Attributes:
        when: conditions by what they are about: true, false, the values, or a number to be above.
    """

    name: str
    when: Mapping[str, bool | tuple[str, ...] | float]
    what: str
    instead: str
    source: str
    engine: str | None = None
    since: str | None = None
    before: str | None = None

    def concerns(self, contract: Contract) -> bool:
        """Whether this engine at this version has the problem; one of unknown version counts as new."""
        if self.engine not in (None, contract.engine):
            return False
        number = release(contract.version or "")
        if number is None:
            return self.before is None
        return (release(self.since or "") or number) <= number and (
            number < (release(self.before or "") or (*number, 1))
        )


@cache
def combinations() -> tuple[Combination, ...]:
    """All rules, in the order of the file."""
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        Combination(**{**entry, "when": {key: _condition(value) for key, value in entry["when"].items()}})
        for entry in document["combination"]
    )


def broken_combinations(contract: Contract, command: EngineCommand, profile: Profile) -> Iterator[Fault]:
    """A fault for each rule that ``command`` breaks; its origin is left for the caller to fill in."""
    for rule in combinations():
        if not rule.concerns(contract):
            continue
        found = {key: _stated(key, contract, command, profile) for key in rule.when}
        if all(_holds(condition, found[key]) for key, condition in rule.when.items()):
            key, stated = next((key, stated) for key, stated in found.items() if stated is not None)
            word = key if stated.value in ("", "True") else f"{key} {stated.value}"
            what = f"{word} {rule.what} ({contract.title}; {rule.source}); {rule.instead}"
            yield Fault(stated.path, "", what)


def _condition(value: Any) -> bool | tuple[str, ...] | float:
    if isinstance(value, dict):
        return float(value["above"])
    return tuple(value) if isinstance(value, list) else bool(value)


def _holds(condition: bool | tuple[str, ...] | float, stated: Stated | None) -> bool:
    if isinstance(condition, bool):
        return condition is (stated is not None)
    if stated is None:
        return False
    if isinstance(condition, tuple):
        return stated.value.lower() in {value.lower() for value in condition}
    try:
        return float(stated.value) > condition
    except ValueError:
        return False


def _stated(key: str, contract: Contract, command: EngineCommand, profile: Profile) -> Stated | None:
    """What the command, or else the profile, states under ``key``; the last word counts, as for engines."""
    if key.startswith("--"):
        known = contract.flags.get(key)
        names = known.names if known else (key,)
        values = [Stated(one.value or "", one.source) for one in command.arguments if one.flag in names]
    elif "." in key:
        section, name = key.split(".")
        value = getattr(getattr(profile, section), name, None)
        values = [] if value is None else [Stated(str(value), key)]
    else:
        # SGLang takes SGL_X for SGLANG_X, and over it (0.5.10.post1 and 0.5.23, sglang/srt/environ.py).
        old = key.replace("SGLANG_", "SGL_", 1) if contract.engine == "sglang" else key
        values = [
            Stated(one.value, one.source)
            for name in dict.fromkeys((key, old))
            for one in command.variables
            if one.name == name
        ]
    return values[-1] if values else None
