"""Launch commands that others have published: a profile says the same, or what it cannot say is named.

Each file of tests/fixtures/commands holds one, with its flags, values and variables as published, and in
``profile`` its translation. A ``refused`` table names what the translation leaves out (``without``), why, and
what draftgate answers when it is ``set`` all the same.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from draftgate.cli.load import Loaded, load
from draftgate.engine.contract import Contract, Flag, Kind, load_contract
from draftgate.engine.pins import PINS
from draftgate.errors import ProfileError
from draftgate.profile.model import Line
from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "tests" / "fixtures" / "commands"
COMMANDS = {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in FOLDER.glob("*.toml")}

# What a rendering says though nobody told it: by engine, the flag's first name or the variable, and value.
# Beside these, a value that the engine would take anyway (the contract's default) says nothing new.
ADDED: dict[tuple[str, str, object], str] = {
    ("vllm", "--host", "0.0.0.0"): "unset, vLLM binds to all addresses; a profile binds to what it states",
    ("vllm", "--shutdown-timeout", 30): "launch.drain_seconds; vLLM's 0 kills its engine core at once",
    ("sglang", "--enable-metrics", True): "the sidecar needs it",
    ("vllm", "PYTHONUNBUFFERED", "1"): "the log arrives line by line",
    ("sglang", "PYTHONUNBUFFERED", "1"): "the log arrives line by line",
}
_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d+)?")

Said = dict[str, object]


def said(argv: Sequence[str], environ: Mapping[str, str], contract: Contract) -> Said:
    """Flags by their first name and variables, each with its value as the engine reads it."""
    found: Said = {}
    for name, flag, value in _flags(argv, contract):
        before = found.get(name)
        if flag is not None and flag.kind is Kind.JSON and isinstance(before, dict):
            value = _merged(before, value)
        found[name] = value
    for name, value in environ.items():
        # SGLang renames the one to the other when it starts (sglang/srt/environ.py).
        found[name.replace("SGL_", "SGLANG_", 1) if contract.engine == "sglang" else name] = value
    return found


def _flags(argv: Sequence[str], contract: Contract) -> Iterator[tuple[str, Flag | None, Any]]:
    # ENGINE serve …, or python -m MODULE …
    words = list(argv[2:] if argv[1] == "serve" else argv[3:])
    if not _is_flag(words[0]):
        words.insert(0, "--model")
    while words:
        word = words.pop(0)
        values = []
        while words and not _is_flag(words[0]):
            values.append(words.pop(0))
        head, equals, inline = word.partition("=")
        if equals:
            values.insert(0, inline)
        name, dot, path = head.partition(".")
        if contract.engine == "vllm" and name.startswith("--"):
            name = name.replace("_", "-")
        flag = _flag(name, contract)
        if flag is None:
            yield head, None, tuple(values)
        elif dot:
            (text,) = values
            value = _json(text)
            for key in reversed(path.split(".")):
                value = {key: value}
            yield flag.names[0], flag, value
        elif flag.kind is Kind.SWITCH:
            assert values == [], word
            yield flag.names[0], flag, name not in flag.negations
        elif flag.nargs is None:
            (text,) = values
            yield flag.names[0], flag, _value(flag, text)
        else:
            yield flag.names[0], flag, tuple(_value(flag, text) for text in values)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(word)


def _flag(name: str, contract: Contract) -> Flag | None:
    """The flag of that name, or the only one that begins so, as argparse completes it (SGLang's ``--tp``)."""
    if name in contract.flags:
        return contract.flags[name]
    longer = [known for known in contract.flags if known.startswith(name)]
    return contract.flags[longer[0]] if len(longer) == 1 else None


def _value(flag: Flag, text: str) -> object:
    match flag.kind:
        case Kind.INTEGER:
            return int(text)
        case Kind.SIZE:
            return int(text) if re.fullmatch(r"-?\d+", text) else text
        case Kind.NUMBER:
            return float(text)
        case _:
            value = _json(text)
            return value if isinstance(value, dict) else text.lower() if flag.folds_case else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _merged(one: dict[str, Any], other: Any) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        merged[key] = (
            _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
        )
    return merged


def less(whole: Said, without: Sequence[str]) -> Said:
    """``whole`` without flags, variables, or one key of a flag's JSON (``--flag.key``)."""
    rest = dict(whole)
    for name in without:
        base, dot, key = name.partition(".")
        value = rest.pop(base)
        if dot:
            assert isinstance(value, dict)
            assert key in value
            rest[base] = {each: item for each, item in value.items() if each != key}
    return rest


def translated(case: Mapping[str, Any], folder: Path, *sets: str) -> Loaded:
    """The translation of a published command, loaded from a file of its own."""
    pin = next(pin for pin in PINS if pin.id == case["pin"])
    engine = {"name": pin.engine.value, "line": pin.line.value}
    file = folder / "translated.toml"
    file.write_text(tomlkit.dumps({"description": case["source"], "engine": engine, **case["profile"]}))
    return load(str(file), sets)


def unlike(case: Mapping[str, Any], loaded: Loaded) -> dict[str, tuple[object, object]]:
    """What is published and rendered differently, as a pair; None where one of them says nothing."""
    contract = load_contract(case["pin"])
    left_out = [name for one in case.get("refused", ()) for name in one["without"]]
    published = less(said(case["argv"], case.get("env", {}), contract), left_out)
    rendered = said(loaded.command.argv(), loaded.command.environment(), contract)
    different = {
        name: (published.get(name), rendered.get(name))
        for name in published.keys() | rendered.keys()
        if published.get(name) != rendered.get(name)
    }
    served = published.get("--served-model-name", _served(contract, published["--model"]))
    return {
        name: (before, after)
        for name, (before, after) in different.items()
        if before is not None
        or not (
            (contract.engine, name, after) in ADDED
            or (name == "--served-model-name" and after == served)
            or (name in contract.flags and contract.flags[name].default == after)
        )
    }


def _served(contract: Contract, model: object) -> object:
    """Unset, both engines serve under the model's own path."""
    return (model,) if contract.flags["--served-model-name"].nargs else model


def test_there_are_enough_of_both_engines_and_lines() -> None:
    assert len(COMMANDS) >= 15
    boxes = {pin.id for pin in PINS if pin.line in (Line.CUDA12, Line.CUDA13)}
    assert {case["pin"] for case in COMMANDS.values()} == boxes
    assert len({case["source"] for case in COMMANDS.values()}) == len(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_its_translation_says_the_same(name: str, tmp_path: Path) -> None:
    assert unlike(COMMANDS[name], translated(COMMANDS[name], tmp_path)) == {}


@pytest.mark.parametrize("addition", ADDED)
def test_each_addition_is_needed(
    addition: tuple[str, str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ADDED, addition)
    assert any(unlike(case, translated(case, tmp_path)) for case in COMMANDS.values())


def _changes(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The published command with one value or variable changed, for each that the translation is to say."""
    left_out = {name for one in case.get("refused", ()) for name in one["without"]}
    argv = case["argv"]
    for at in range(2 if argv[1] == "serve" else 3, len(argv)):
        head, equals, inline = argv[at].partition("=")
        if argv[at - 1] in left_out:
            continue
        if not _is_flag(argv[at]):
            yield {**case, "argv": [*argv[:at], _other(argv[at]), *argv[at + 1 :]]}
        elif equals:
            yield {**case, "argv": [*argv[:at], f"{head}={_other(inline)}", *argv[at + 1 :]]}
    environ = case.get("env", {})
    for name in environ.keys() - left_out:
        yield {**case, "env": {**environ, name: f"{environ[name]}1"}}


def _other(text: str) -> str:
    value = _json(text)
    return json.dumps({**value, "other": 1}) if isinstance(value, dict) else f"{text}1"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_any_changed_value_is_found(name: str, tmp_path: Path) -> None:
    loaded = translated(COMMANDS[name], tmp_path)
    changes = list(_changes(COMMANDS[name]))
    assert len(changes) > 1
    assert [each for each in changes if not unlike(each, loaded)] == []


@pytest.mark.parametrize(
    ("sets", "found"),
    [
        ("engine_flags.enable-log-requests=true", {"--enable-log-requests": (False, True)}),
        ("execution.eager=true", {"--enforce-eager": (None, True)}),
        ("env.NCCL_DEBUG=INFO", {"NCCL_DEBUG": (None, "INFO")}),
        ("target.served_name=other", {"--served-model-name": (None, ("other",))}),
    ],
)
def test_what_only_the_rendering_says_is_found(sets: str, found: object, tmp_path: Path) -> None:
    case = COMMANDS["recipe-vllm-kimi-k2-instruct"]
    assert unlike(case, translated(case, tmp_path, sets)) == found


REFUSED = [
    (name, index) for name, case in sorted(COMMANDS.items()) for index in range(len(case.get("refused", ())))
]


@pytest.mark.parametrize(("name", "index"), REFUSED)
def test_what_it_leaves_out_is_refused(name: str, index: int, tmp_path: Path) -> None:
    refused = COMMANDS[name]["refused"][index]
    with pytest.raises(ProfileError) as caught:
        translated(COMMANDS[name], tmp_path, *refused["set"])
    assert [f"{fault.path}: {fault.what}" for fault in caught.value.faults] == refused["faults"]
    assert refused["why"]
