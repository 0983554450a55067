"""Holds a command against a contract: what the pinned engine would refuse, misread or ignore.

Reads words as argparse does (CPython 3.11-3.13, ``_parse_optional`` and ``consume_optional``), with the
rewriting of vLLM's parser (``vllm/utils/argparse_utils.py``). Stricter in three places: a flag that argparse
would complete by its beginning is refused, since another version completes it to another flag, or to none; so
is a value without a space behind a short flag (``-q8``); and since vLLM takes a stray value
(``--enforce-eager true``) for the model's name, only the first word may be it.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftgate.engine.command import Argument, EngineCommand, Variable
from draftgate.engine.contract import Contract, Flag, Kind
from draftgate.engine.values import among, count_text, counts, is_json, is_known, short, type_problem
from draftgate.profile.catalogue import nearest

# Variables that belong to an engine: unlike others, nobody else reads them.
PREFIXES = ("VLLM_", "SGLANG_", "SGL_", "FLASHINFER_")
# sglang 0.5.10.post1 and 0.5.23 srt/environ.py, EnvBool; whatever the case.
_BOOLEANS = ("true", "1", "yes", "y", "false", "0", "no", "n")
_SPECULATIVE = "--speculative-config"
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Wrong(enum.StrEnum):
    UNKNOWN_FLAG = "unknown flag"
    SHORTENED_FLAG = "shortened flag"
    MISSING_VALUE = "missing value"
    SUPERFLUOUS_VALUE = "superfluous value"
    WRONG_TYPE = "wrong type"
    UNKNOWN_VALUE = "unknown value"
    UNKNOWN_KEY = "unknown key"
    UNKNOWN_VARIABLE = "unknown variable"


@dataclass(frozen=True)
class Mismatch:
    """One thing that the pinned engine does not know.

    Attributes:
        name: the flag or variable; a key as ``FLAG.key``.
        source: the path in the profile that it comes from.
        what: the mismatch in one sentence.
        nearest: the known name most like it, when there is one.
    """

    wrong: Wrong
    name: str
    source: str
    what: str
    nearest: str | None = None


@dataclass(frozen=True)
class _Word:
    text: str
    source: str


def check(contract: Contract, command: EngineCommand) -> tuple[Mismatch, ...]:
    """All that the contract does not know of a command."""
    return (
        *check_arguments(contract, command.arguments),
        *check_variables(contract, command.variables),
    )


def check_variables(contract: Contract, variables: Sequence[Variable]) -> tuple[Mismatch, ...]:
    """Variables of an engine's that nothing at this pin reads, and booleans that it takes for none."""
    found = []
    for one in variables:
        if one.name.startswith(PREFIXES) and not _reads(contract, one.name):
            what, near = f"{contract.title} does not read {one.name}", nearest(one.name, contract.variables)
            found.append(Mismatch(Wrong.UNKNOWN_VARIABLE, one.name, one.source, what, near))
        elif (
            _renamed(contract, one.name) in contract.boolean_variables and one.value.lower() not in _BOOLEANS
        ):
            what = (
                f"{contract.title} knows {', '.join(_BOOLEANS)}; for {short(one.value)} it takes the default"
            )
            found.append(Mismatch(Wrong.UNKNOWN_VALUE, one.name, one.source, what))
    return tuple(found)


def check_arguments(contract: Contract, arguments: Sequence[Argument]) -> tuple[Mismatch, ...]:
    """Flags and values that the engine's parser or its start would refuse."""
    words = [_Word(text, argument.source) for argument in arguments for text in argument.words()]
    return tuple(_Reader(contract, words).mismatches())


def _reads(contract: Contract, name: str) -> bool:
    # FlashInfer's own variables are known only where its package was looked into too.
    if name.startswith("FLASHINFER_") and None in contract.companions.values():
        return True
    return name in contract.variables or _renamed(contract, name) in contract.variables


def _renamed(contract: Contract, name: str) -> str:
    # SGLang renames every SGL_X to SGLANG_X when it starts (sglang/srt/environ.py).
    return name.replace("SGL_", "SGLANG_", 1) if contract.engine == "sglang" else name


class _Reader:
    """One pass over the words: a flag, then as many values as it takes."""

    def __init__(self, contract: Contract, words: Sequence[_Word]) -> None:
        self._contract = contract
        self._words = [self._spelled(word) for word in words]
        speculative = contract.flags.get(_SPECULATIVE)
        with_keys = speculative is not None and contract.speculative_keys is not None
        self._speculative_names = speculative.names if speculative and with_keys else ()
        self._plugins = any(word.text.endswith("-parser-plugin") for word in self._words)

    def mismatches(self) -> Iterator[Mismatch]:
        free = self._contract.positionals
        at = 0
        while at < len(self._words):
            word = self._words[at]
            if not self._is_flag(word.text):
                if at >= free:
                    yield self._mismatch(
                        Wrong.SUPERFLUOUS_VALUE, word, f"no flag takes the value {word.text!r}"
                    )
                at += 1
                continue
            end = at + 1
            while end < len(self._words) and not self._is_flag(self._words[end].text):
                end += 1
            used, found = self._flag(word, self._words[at + 1 : end])
            yield from found
            at += 1 + used

    def _flag(self, word: _Word, values: Sequence[_Word]) -> tuple[int, list[Mismatch]]:
        """How many of the words after a flag belong to it, and what is wrong."""
        name, equals, inline = word.text.partition("=")
        base, dot, path = name.partition(".")
        flag = self._contract.flags.get(name)
        if flag is None and dot and self._contract.engine == "vllm":
            flag = self._contract.flags.get(base)
            if flag is not None and flag.kind is Kind.JSON:
                return (0 if equals else min(1, len(values))), self._part(word, base, path, equals, values)
        if flag is None:
            # Its values are unknown too: one complaint for all of them.
            return len(values), [self._unknown(word, name)]
        if equals:
            values = (_Word(inline, word.source),)
        least, most = counts(flag)
        taken = values[:most]
        if len(taken) < least or (equals and most == 0):
            wrong = Wrong.SUPERFLUOUS_VALUE if most == 0 else Wrong.MISSING_VALUE
            return 0, [self._mismatch(wrong, word, count_text(name, flag), name=name)]
        found = [each for value in taken for each in self._value(name, flag, value)]
        return (0 if equals else len(taken)), found

    def _part(
        self, word: _Word, base: str, path: str, equals: str, values: Sequence[_Word]
    ) -> list[Mismatch]:
        """vLLM's ``--flag.key value``."""
        found = []
        if not equals and not values:
            found.append(
                self._mismatch(Wrong.MISSING_VALUE, word, f"{word.text} needs a value", name=word.text)
            )
        keys = self._contract.speculative_keys
        key = path.partition(".")[0].rstrip("+")
        if base in self._speculative_names and keys is not None and key not in keys:
            found.append(self._unknown_key(word, key))
        return found

    def _value(self, name: str, flag: Flag, value: _Word) -> Iterator[Mismatch]:
        text = value.text
        if flag.nullable and text in ("", "None"):
            return
        problem = type_problem(flag, text)
        if problem:
            yield self._mismatch(Wrong.WRONG_TYPE, value, f"{name} {problem}, not {short(text)}", name=name)
        elif not is_known(flag, text, self._plugins):
            choices = [str(choice) for choice in flag.choices or flag.known or ()]
            folded = {choice.lower(): choice for choice in choices}
            near = nearest(text, choices) or folded.get(nearest(text.lower(), folded) or "")
            yield Mismatch(
                Wrong.UNKNOWN_VALUE,
                name,
                value.source,
                f"{name} of {self._contract.title} does not know the value {short(text)}",
                near,
            )
        elif name in self._speculative_names:
            yield from self._speculative(value)

    def _speculative(self, value: _Word) -> Iterator[Mismatch]:
        known = self._contract.speculative_keys or {}
        config = json.loads(value.text)
        if not isinstance(config, dict):
            what = f"{_SPECULATIVE} needs a JSON object, not {short(value.text)}"
            yield self._mismatch(Wrong.WRONG_TYPE, value, what, name=_SPECULATIVE)
            return
        for key, item in config.items():
            if key not in known:
                yield self._unknown_key(value, key)
                continue
            entry, path = known[key], f"{_SPECULATIVE}.{key}"
            if not is_json(item, entry.types):
                what = f"{path} must be {' or '.join(entry.types)}, not {short(json.dumps(item))}"
                yield self._mismatch(Wrong.WRONG_TYPE, value, what, name=path)
            elif isinstance(item, str) and entry.choices and not among(item, entry.choices, entry.folds_case):
                what = f"{path} of {self._contract.title} does not know the value {short(item)}"
                yield Mismatch(Wrong.UNKNOWN_VALUE, path, value.source, what, nearest(item, entry.choices))

    def _unknown_key(self, word: _Word, key: str) -> Mismatch:
        return Mismatch(
            Wrong.UNKNOWN_KEY,
            f"{_SPECULATIVE}.{key}",
            word.source,
            f"{_SPECULATIVE} of {self._contract.title} has no key {short(key)}",
            nearest(key, self._contract.speculative_keys or ()),
        )

    def _unknown(self, word: _Word, name: str) -> Mismatch:
        longer = sorted(known for known in self._contract.flags if known.startswith(name))
        if longer:
            return Mismatch(
                Wrong.SHORTENED_FLAG,
                name,
                word.source,
                f"{self._contract.title} has no flag {name}; it would be taken for the beginning of "
                f"{' or '.join(longer[:3])}",
                nearest(name, longer) or longer[0],
            )
        what = f"{self._contract.title} has no flag {short(name)}"
        return Mismatch(Wrong.UNKNOWN_FLAG, name, word.source, what, nearest(name, self._contract.flags))

    def _mismatch(self, wrong: Wrong, word: _Word, what: str, name: str | None = None) -> Mismatch:
        return Mismatch(wrong, word.text if name is None else name, word.source, what)

    def _spelled(self, word: _Word) -> _Word:
        """vLLM takes underscores for dashes in flags, up to the first dot, and ``-O3`` for its level."""
        if self._contract.engine != "vllm":
            return word
        if word.text.startswith("--"):
            head, rest = re.fullmatch(r"(--[^.=]*)(.*)", word.text, re.DOTALL).groups()  # type: ignore[union-attr]
            return _Word(head.replace("_", "-") + rest, word.source)
        if re.fullmatch(r"-O=?\d", word.text):
            return _Word(f"--optimization-level={word.text[-1]}", word.source)
        return word

    def _is_flag(self, text: str) -> bool:
        if not text.startswith("-") or text == "-":
            return False
        if text.partition("=")[0] in self._contract.flags:
            return True
        return not (_NEGATIVE_NUMBER.fullmatch(text) or " " in text)
