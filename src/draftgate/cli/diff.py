"""`draftgate diff`: what two profiles, or one profile on two lines of pins, do differently."""

from __future__ import annotations

from typing import Annotated

import typer

from draftgate.cli.load import Loaded, load
from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json, Sets
from draftgate.profile.layers import Entry, dotted
from draftgate.profile.model import Line
from draftgate.profile.parity import Difference, differences

Side = Annotated[str, typer.Argument(metavar="PROFILE[@LINE]", help="A profile, on another line if wanted.")]


def diff(a: Side, b: Side, sets: Sets = None, as_json: Json = False) -> None:
    """Show what two profiles say and start differently, and mark what arms of an A/B should not differ in.

    @LINE alone is the first one's profile on that line; @custom takes --set engine.source=PATH for itself.
    """
    first, second = a.partition("@"), b.partition("@")
    sides = [(first[0], first[2]), (second[0] or first[0], second[2])]
    left, right = (_load(name, line, sets or [], sides) for name, line in sides)
    found = differences(left.resolved, right.resolved)
    gone, come = _words(left, right), _words(right, left)
    if as_json:
        print_json({"keys": [_as_json(one) for one in found], "only_a": gone, "only_b": come})
        return
    rows = [
        (dotted(one.path), _value(one.a), _value(one.b), "" if one.meant else "NOT MEANT", _why(one))
        for one in found
    ]
    print_table(("KEY", a, b, "", "WHY"), rows)
    print(f"\nthe command: {len(gone)} words in {a} alone (-), {len(come)} in {b} alone (+)")
    for sign, words in (("-", gone), ("+", come)):
        for word in words:
            print(f"{sign} {word}")


def _load(name: str, line: str, sets: list[str], sides: list[tuple[str, str]]) -> Loaded:
    """One side; where one of them alone is an own build, so is engine.source."""
    if line != Line.CUSTOM and any(other == Line.CUSTOM for _, other in sides):
        sets = [one for one in sets if one.partition("=")[0].strip() != "engine.source"]
    return load(name, [*sets, f"engine.line={line}"] if line else sets)


def _words(of: Loaded, other: Loaded) -> list[str]:
    """Words and variables of one command that the other lacks, in order; each word once for every time."""
    lacking = _all_words(other)
    found = []
    for word in _all_words(of):
        if word in lacking:
            lacking.remove(word)
        else:
            found.append(word)
    return found


def _all_words(loaded: Loaded) -> list[str]:
    command = loaded.command
    flags = [" ".join(argument.words()) for argument in command.arguments]
    return [command.pin.module, *flags, *(f"{one.name}={one.value}" for one in command.variables)]


def _value(entry: Entry | None) -> str:
    return "" if entry is None else str(entry.value)


def _why(one: Difference) -> str:
    comments = (entry.origin.comment for entry in (one.a, one.b) if entry is not None)
    return " / ".join(dict.fromkeys(filter(None, comments)))


def _as_json(one: Difference) -> dict[str, object]:
    def side(entry: Entry | None) -> dict[str, object] | None:
        if entry is None:
            return None
        return {"value": entry.value, "from": entry.origin.name, "why": entry.origin.comment}

    return {"key": dotted(one.path), "meant": one.meant, "a": side(one.a), "b": side(one.b)}
