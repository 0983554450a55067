"""What an engine knows word by word and cannot do together: rules as data, in combinations.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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
class Condition:
    """What must hold of one key; the forms of combinations.toml.

    Attributes:
        among: values, in small letters; None among them stands for nothing stated. Without them any value.
        complement: none of them must be it, instead of one.
        above: a number that the value must exceed.
        no_divisor_of: a key whose number the value must not divide.
    """

    among: frozenset[str | None] | None = None
    complement: bool = False
    above: float | None = None
    no_divisor_of: str | None = None

    @classmethod
    def read(cls, form: Any) -> Condition:
        match form:
            case bool():
                return cls(frozenset({None}), complement=form)
            case list():
                return cls(frozenset(None if one is False else one.lower() for one in form))
            case {"not": list(values)}:
                return replace(cls.read(values), complement=True)
            case {"above": number}:
                return cls(above=float(number))
            case {"no_divisor_of": str(key)}:
                return cls(no_divisor_of=key)
        raise ValueError(f"combinations.toml: no such condition: {form!r}")

    def holds(self, stated: Stated | None, other: Callable[[str], Stated | None]) -> bool:
        if self.among is not None:
            return ((stated.value.lower() if stated else None) in self.among) is not self.complement
        try:
            number = float(stated.value) if stated else 0.0
            if self.no_divisor_of is not None:
                whole = other(self.no_divisor_of)
                return number > 0 and float(whole.value if whole else 1) % number != 0
        except ValueError:
            return False
        return self.above is not None and number > self.above


@dataclass(frozen=True)
class Combination:
    """One rule; its attributes are the keys of combinations.toml, which explains them.

    Attributes:
        when: conditions by what they are about, each a choice of keys.
    """

    name: str
    when: Mapping[tuple[str, ...], Condition]
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
        Combination(
            **{
                **entry,
                "when": {
                    tuple(keys.split("|")): Condition.read(form) for keys, form in entry["when"].items()
                },
            }
        )
        for entry in document["combination"]
    )


def broken_combinations(contract: Contract, command: EngineCommand, profile: Profile) -> Iterator[Fault]:
    """A fault for each rule that ``command`` breaks; its origin is left for the caller to fill in."""

    def stated(key: str) -> Stated | None:
        return _stated(key, contract, command, profile)

    for rule in combinations():
        if not rule.concerns(contract):
            continue
        met = [_met(keys, condition, stated) for keys, condition in rule.when.items()]
        if all(met):
            key, found = next((key, found) for key, found in filter(None, met) if found is not None)
            word = key if found.value in ("", "True") else f"{key} {found.value}"
            what = f"{word} {rule.what} ({contract.title}; {rule.source}); {rule.instead}"
            yield Fault(found.path, "", what)


def _met(
    keys: tuple[str, ...], condition: Condition, stated: Callable[[str], Stated | None]
) -> tuple[str, Stated | None] | None:
    """The key that meets the condition, with what is stated there; nothing stated counts where no key is."""
    found = [(key, stated(key)) for key in keys]
    for key, one in [pair for pair in found if pair[1] is not None] or found[:1]:
        if condition.holds(one, stated):
            return key, one
    return None


def _stated(key: str, contract: Contract, command: EngineCommand, profile: Profile) -> Stated | None:
    """What the command, or else the profile, states under ``key``; the last word counts, as for engines."""
    if key.startswith("--"):
        values = list(_of_flag(key, contract, command))
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


def _of_flag(key: str, contract: Contract, command: EngineCommand) -> Iterator[Stated]:
    """The values of a flag; of ``--flag.key`` also those in the flag's JSON, as vLLM takes both."""
    flag, _, part = key.partition(".")
    known = contract.flags.get(flag)
    names = known.names if known else (flag,)
    for one in command.arguments:
        word, equals, inline = one.flag.partition("=")
        name, _, rest = word.replace("_", "-").partition(".")
        value = inline if equals else one.value or ""
        if name not in names:
            continue
        if rest == part.replace("_", "-"):
            yield Stated(value, one.source)
        elif part and not rest:
            found = _json(value).get(part)
            if found is not None:
                path = f"speculation.engine_keys.{part}" if one.source == "speculation" else one.source
                yield Stated(str(found), path)


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}  # a fault of its own, of `conformity`
    return found if isinstance(found, dict) else {}
