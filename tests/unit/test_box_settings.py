"""What the box's profiles render, against the table of what public experience says they should set."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from draftgate.cli.load import Loaded, load
from draftgate.engine.contract import load_contract
from draftgate.engine.pins import find_pin
from draftgate.profile.layers import dotted
from draftgate.profile.model import Line
from tests.conftest import REPOSITORY

TABLE = REPOSITORY / "tests" / "fixtures" / "box" / "settings.toml"
SCOPES = {
    "all": ("vllm-baseline", "vllm-eagle", "sglang", "sglang-eagle", "sglang-eagle-custom"),
    "vllm": ("vllm-baseline", "vllm-eagle"),
    "sglang": ("sglang", "sglang-eagle", "sglang-eagle-custom"),
    "sglang-eagle": ("sglang-eagle", "sglang-eagle-custom"),
}
LINES = ("cuda12", "cuda13")
# The file's own name for what a person reads; every other value has its reason.
WITHOUT_REASON = ("description",)


@dataclass(frozen=True)
class Wanted:
    """A flag or variable, and what it may be; a flag that stands alone is ``set``."""

    name: str
    is_: str | None = None
    one_of: tuple[str, ...] = ()
    between: tuple[float, float] | None = None
    absent: bool = False

    def met(self, found: str | None) -> bool:
        if self.absent or found is None:
            return self.absent and found is None
        if self.between is not None:
            return self.between[0] <= float(found) <= self.between[1]
        return found in (self.one_of or (self.is_,))


@dataclass(frozen=True)
class Setting:
    wanted: Wanted
    scope: str
    reason: str
    source: str
    lines: tuple[str, ...] = LINES
    where: str = "rendering"
    mentions: tuple[str, ...] = ()

    def applies(self, profile: str, line: str) -> bool:
        return profile in SCOPES[self.scope] and line in self.lines


@dataclass(frozen=True)
class Deviation:
    wanted: Wanted
    profiles: tuple[str, ...]
    key: str


def _wanted(row: dict[str, Any]) -> Wanted:
    between = row.pop("between", None)
    return Wanted(
        name=row.pop("name"),
        is_=row.pop("is", None),
        one_of=tuple(row.pop("one_of", ())),
        between=(between[0], between[1]) if between else None,
        absent=row.pop("absent", False),
    )


def _frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


@cache
def table() -> tuple[tuple[Setting, ...], tuple[Deviation, ...]]:
    document = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    settings = [Setting(_wanted(row), **_frozen(row)) for row in document["setting"]]
    deviations = [Deviation(_wanted(row), **_frozen(row)) for row in document["deviation"]]
    return tuple(settings), tuple(deviations)


def _rendered(loaded: Loaded) -> dict[str, str]:
    flags = {one.flag: "set" if one.value is None else one.value for one in loaded.command.arguments}
    return flags | loaded.command.environment() | {loaded.pin.engine.value: loaded.pin.version}


def _effective(settings: Sequence[Setting], profile: str, line: str) -> list[Setting]:
    """The rows that hold for a profile; of two for one name the narrower scope's, which stands later."""
    rows = [one for one in settings if one.where != "guide" and one.applies(profile, line)]
    return list({one.wanted.name: one for one in rows}.values())


def complaints(
    loaded: Loaded, line: str, settings: Sequence[Setting], deviations: Sequence[Deviation]
) -> list[str]:
    """Rows that the rendering does not follow without a reason, and deviations that are none."""
    rendered, found = _rendered(loaded), []
    own = {one.wanted.name: one for one in deviations if loaded.profile.name in one.profiles}
    for setting in _effective(settings, loaded.profile.name, line):
        name = setting.wanted.name
        value, deviation = rendered.get(name), own.pop(name, None)
        if setting.wanted.met(value):
            if deviation is not None:
                found.append(f"{name}: a deviation is listed, but {value} is what the table says")
            continue
        if deviation is None or not deviation.wanted.met(value):
            found.append(f"{name}: {value}, which neither the table nor a deviation says")
            continue
        origin = loaded.resolved.origin(deviation.key)
        if origin is None:
            found.append(f"{name}: no layer says {deviation.key}")
        elif not origin.comment:
            found.append(f"{name}: no reason stands at {deviation.key} in {origin.name}")
    return found + [f"{name}: a deviation from no row" for name in own]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("profile", SCOPES["all"])
def test_the_rendering_follows_the_table_or_says_why_not(profile: str, line: str) -> None:
    assert complaints(load(profile, [f"engine.line={line}"]), line, *table()) == []


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("profile", SCOPES["all"])
def test_every_value_that_a_layer_of_the_box_says_has_its_reason(profile: str, line: str) -> None:
    leaves = load(profile, [f"engine.line={line}"]).resolved.leaves
    stated = {path: entry for path, entry in leaves.items() if entry.origin.name != "--set"}
    assert len(stated) > 20
    without = [dotted(path) for path, entry in stated.items() if not entry.origin.comment]
    assert [path for path in without if path not in WITHOUT_REASON] == []


def test_a_row_for_one_line_names_what_the_other_does_not_know() -> None:
    rows = [one for one in table()[0] if one.lines != LINES and one.where == "rendering"]
    assert rows
    for row in rows:
        for line in set(LINES) - set(row.lines):
            engine = load(SCOPES[row.scope][0]).profile.engine.name
            pin = find_pin(engine, Line(line))
            assert pin is not None
            contract = load_contract(pin.id)
            assert row.wanted.name not in {*contract.flags, *contract.variables}, (row.wanted.name, line)


def test_rows_say_why_and_who_says_so() -> None:
    settings, _ = table()
    assert len(settings) > 50
    for row in settings:
        assert row.reason, row
        assert row.source, row
        assert bool(row.mentions) == (row.where == "guide"), row


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[memory]\ngpu_fraction = 0.5\n", "--mem-fraction-static: 0.5, which neither"),
        ("[drafter]\nmodel = '/models/own-eagle3'\n", "no reason stands at drafter.model in"),
        ("[drafter]\nmodel = 'AQ-MedAI/Kimi-K25-eagle3'\n", "a deviation is listed, but AQ-MedAI"),
        ("[env]\nNCCL_P2P_DISABLE = '1'\n", "NCCL_P2P_DISABLE: 1, which neither"),
    ],
)
def test_what_does_not_follow_is_found(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile of the same name in a folder of one's own, with one value changed and no reason at it."""
    profile = REPOSITORY / "profiles" / "sglang-eagle-custom.toml"
    (tmp_path / profile.name).write_text(profile.read_text(encoding="utf-8") + "\n" + text, encoding="utf-8")
    monkeypatch.setenv("DRAFTGATE_PROFILE_PATH", str(tmp_path))
    (found,) = complaints(load("sglang-eagle-custom"), "cuda12", *table())
    assert complaint in found
