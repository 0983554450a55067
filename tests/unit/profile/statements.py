"""Profiles to test with: what can be said to each pin, rightly and wrongly, made by hypothesis."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st

from draftgate.engine import sglang, vllm
from draftgate.engine.contract import Contract, Flag, Kind, load_contract
from draftgate.engine.pins import PINS
from draftgate.profile.loader import schema_paths
from draftgate.profile.model import EngineName, Profile
from tests.conftest import REPOSITORY

Said = tuple[tuple[str, ...], Any]  # a path in a profile, and the value there

PATHS = list(schema_paths(Profile))
# What every profile states, or states as a pair, or is not of the file: the rest may be left out.
OPTIONAL = [
    path
    for path in PATHS
    if path[0] not in ("name", "description", "engine", "speculation", "env", "engine_flags")
    and path not in (("target", "model"), ("target", "served_name"), ("drafter", "model"))
]
PARENTS = [
    *(f"layers/{file.stem}" for file in (REPOSITORY / "profiles" / "layers").glob("*.toml")),
    *(file.stem for file in (REPOSITORY / "profiles").glob("*.toml")),
]
DERIVED = {EngineName.VLLM: vllm.DERIVED, EngineName.SGLANG: sglang.DERIVED}

ANY_TEXT = st.text(max_size=8) | st.sampled_from(
    (
        "org/model",
        "./folder",
        "~nobody/x",
        "a b'c\"$D",
        "--x",
        "-1",
        "",
        "a=b",
        "\0",
        "\u2028\x85\x7f",
        "x" * 300,
    )
)
TEXT = ANY_TEXT.filter(lambda text: bool(text.strip()) and "\0" not in text)
ODD = st.one_of(
    ANY_TEXT,
    st.sampled_from((-1, 0, 10**20, math.nan, math.inf, -0.5, True, False, datetime.date(1979, 5, 27))),
    st.lists(ANY_TEXT | st.integers() | st.booleans(), max_size=2),
    st.dictionaries(ANY_TEXT, st.integers() | ANY_TEXT, max_size=2),
)
SCHEMA = Profile.model_json_schema()


def _schema(path: Sequence[str]) -> dict[str, Any]:
    """What pydantic publishes of one key."""
    node = SCHEMA
    for key in path:
        node = node["properties"][key]
        node = next(one for one in node.get("anyOf", [node]) if one.get("type") != "null")
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return node


def _right(node: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values of the right type, within the limits."""
    if "enum" in node or "const" in node:
        return st.sampled_from(node.get("enum") or [node["const"]])
    match node["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            least = node.get("minimum", node.get("exclusiveMinimum", 0) + 1)
            return st.integers(least, node.get("maximum", 2**40)) | st.integers(least, least + 8)
        case "number":
            limit = node.get("exclusiveMaximum")
            return st.floats(1e-3, 0.99) if limit else st.floats(1e-3, 1e9) | st.just(math.inf)
        case "array":
            return st.lists(_right(node["items"]), max_size=3)
        case _:
            return TEXT


RIGHT = {path: _right(_schema(path)) for path in PATHS if path[0] not in ("env", "engine_flags")}


def _flag_value(flag: Flag) -> st.SearchStrategy[Any]:
    if flag.choices or flag.known:
        return st.sampled_from(flag.choices or flag.known or ())
    match flag.kind:
        case Kind.SWITCH:
            return st.booleans()
        case Kind.INTEGER | Kind.SIZE:
            return st.integers(0, 9_999)
        case Kind.NUMBER:
            return st.floats(0, 1)
        case Kind.BOOLEAN:
            return st.sampled_from(("true", "false"))
        case Kind.JSON:
            return st.dictionaries(st.text(max_size=4), st.integers(), max_size=2).map(json.dumps)
        case _:
            return TEXT


def _misspelt(names: Sequence[str]) -> st.SearchStrategy[str]:
    """A known name with one character doubled, lost or changed."""
    return st.builds(
        lambda name, at, new: name[: at % len(name)] + new + name[at % len(name) + 1 :],
        st.sampled_from(names),
        st.integers(0, 40),
        st.sampled_from(("", "xx", "_", "-", "=", ".", " ", "é")),
    )


class Words:
    """What can be said to one pin."""

    def __init__(self, contract: Contract, engine: EngineName) -> None:
        derived = DERIVED[engine]
        flags = {
            name.removeprefix("--"): flag for name, flag in contract.flags.items() if name.startswith("--")
        }
        own = [
            name
            for name, flag in flags.items()
            if f"--{name}" in flag.names and not any(one.removeprefix("--") in derived for one in flag.names)
        ]
        documents = [name for name in own if flags[name].kind is Kind.JSON]
        self.flags: st.SearchStrategy[Said] = st.sampled_from(own).flatmap(
            lambda name: st.tuples(st.just(("engine_flags", name)), _flag_value(flags[name]))
        )
        variables = st.sampled_from(sorted({*contract.variables} - contract.boolean_variables))
        booleans = st.sampled_from(sorted(contract.boolean_variables) or ["NCCL_DEBUG"])
        self.variables: st.SearchStrategy[Said] = st.tuples(
            (variables | st.just("NCCL_DEBUG")).map(lambda name: ("env", name)), TEXT
        ) | st.tuples(booleans.map(lambda name: ("env", name)), st.sampled_from(("1", "False", "yes")))
        # A parser, a quantisation: text to pydantic, names to the engine.
        by_path = {
            tuple(path.split(".")): flags[name]
            for name, path in derived.items()
            if name in flags and "." in path
        }
        self.keys: st.SearchStrategy[Said] = st.sampled_from(OPTIONAL).flatmap(
            lambda path: st.tuples(
                st.just(path),
                _flag_value(by_path[path]) if path in by_path and by_path[path].known else RIGHT[path],
            )
        )
        self.faults: st.SearchStrategy[Said] = st.one_of(
            st.tuples(st.sampled_from(PATHS), ODD),
            st.tuples(
                st.sampled_from(PATHS).flatmap(lambda p: _misspelt(p[-1:]).map(lambda k: (*p[:-1], k))), ODD
            ),
            st.tuples(st.tuples(ANY_TEXT), ODD),
            st.tuples(
                st.tuples(st.just("engine_flags"), _misspelt(list(flags)) | ANY_TEXT), ODD | st.integers()
            ),
            st.tuples(st.tuples(st.just("engine_flags"), st.sampled_from(list(flags))), ODD),
            st.tuples(st.tuples(st.just("engine_flags"), st.sampled_from(list(derived))), ODD),
            st.tuples(
                st.tuples(
                    st.just("engine_flags"), st.sampled_from(list(flags)).map(lambda name: f"{name}=1")
                ),
                st.just(True),
            ),
            st.tuples(
                st.sampled_from(sorted(contract.speculative_keys or ("any",)))
                .flatmap(lambda key: _misspelt((key,)) | st.just(key))
                .map(lambda key: ("speculation", "engine_keys", key)),
                ODD,
            ),
            # A part of a flag in JSON, as vLLM takes it.
            st.tuples(
                st.tuples(
                    st.just("engine_flags"), st.sampled_from(documents).map(lambda name: f"{name}.key")
                ),
                TEXT,
            ),
            st.tuples(
                st.tuples(st.just("env"), _misspelt(sorted(contract.variables)) | ANY_TEXT), TEXT | ODD
            ),
            st.tuples(
                st.just(("unset",)), st.lists(st.sampled_from(PATHS).map(".".join) | ANY_TEXT, max_size=2)
            ),
            st.tuples(st.just(("extends",)), st.lists(st.sampled_from(PARENTS) | ANY_TEXT, max_size=2) | ODD),
        )


WORDS = [(pin, Words(load_contract(pin.id), pin.engine)) for pin in PINS]


@st.composite
def sayings(draw: st.DrawFn) -> list[Said]:
    """A profile as what it says: mostly one that could be meant, with up to two faults."""
    pin, words = draw(st.sampled_from(WORDS))
    said: list[Said] = [
        (("description",), "Any profile"),
        (("engine", "name"), pin.engine.value),
        (("engine", "line"), pin.line.value),
        (("target", "model"), draw(TEXT)),
        (("target", "served_name"), draw(TEXT)),
    ]
    if draw(st.integers(0, 3)) == 0:
        said.append((("extends",), draw(st.lists(st.sampled_from(PARENTS), min_size=1, max_size=2))))
    if draw(st.booleans()):
        said.append((("drafter", "model"), draw(TEXT)))
        said.append((("speculation", "num_speculative_tokens"), draw(st.integers(1, 9))))
    said += draw(st.lists(words.keys, max_size=3))
    said += draw(st.lists(words.flags, max_size=3))
    said += draw(st.lists(words.variables, max_size=2))
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1, 1, 2)))):
        said.append(draw(words.faults))
    return said


def as_tree(said: Sequence[Said]) -> dict[str, Any]:
    """Tables in tables: later values replace earlier ones, and tables that a value stands for."""
    root: dict[str, Any] = {}
    for path, value in said:
        table = root
        for key in path[:-1]:
            if not isinstance(table.get(key), dict):
                table[key] = {}
            table = table[key]
        table[path[-1]] = value
    return root


def as_toml(root: Mapping[str, Any]) -> str:
    head = [f"{_toml(key)} = {_toml(value)}\n" for key, value in root.items() if not isinstance(value, dict)]
    tables = [
        f"[{_toml(name)}]\n" + "".join(f"{_toml(key)} = {_toml(value)}\n" for key, value in table.items())
        for name, table in root.items()
        if isinstance(table, dict)
    ]
    return "".join([*head, *tables])


def _toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)
