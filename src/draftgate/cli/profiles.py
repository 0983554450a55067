"""`draftgate profiles` and `draftgate show`: what there is, and what one profile says."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from draftgate.cli.load import Loaded, catalogue, load
from draftgate.cli.output import print_json, print_table
from draftgate.errors import DraftgateError, ProfileError
from draftgate.profile.layers import dotted

Name = Annotated[
    str, typer.Argument(metavar="PROFILE", help="A profile's name, or the path of a .toml file.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a key on top of the profile; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def profiles(as_json: Json = False) -> None:
    """List the profiles, each with its engine, target and drafter."""
    found = [_listed(name) for name in catalogue().names()]
    if as_json:
        print_json([dataclasses.asdict(row) for row in found])
        return
    rows = [
        (
            row.name,
            row.engine or "broken",
            row.pin or "",
            str(row.num_speculative_tokens or ""),
            row.description,
        )
        for row in found
    ]
    print_table(("PROFILE", "ENGINE", "PIN", "K", "DESCRIPTION"), rows)


@dataclasses.dataclass(frozen=True)
class _Listed:
    """One row of the list; a profile with faults has no engine and its first fault as description."""

    name: str
    description: str
    engine: str | None = None
    pin: str | None = None
    target: str | None = None
    drafter: str | None = None
    num_speculative_tokens: int | None = None


def _listed(name: str) -> _Listed:
    try:
        loaded = load(name)
    except DraftgateError as error:
        return _Listed(name, error.faults[0].line() if isinstance(error, ProfileError) else error.what)
    profile, pin = loaded.profile, loaded.pin
    return _Listed(
        name,
        profile.description,
        f"{pin.engine} {pin.version}" + ("" if pin.ran else " (never run)"),
        pin.id,
        profile.target.model,
        profile.drafter.model if profile.drafter else None,
        profile.speculation.num_speculative_tokens if profile.speculation else None,
    )


def show(
    name: Name,
    sets: Sets = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say where each value comes from, and why.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a profile says once all its layers are laid over each other."""
    loaded = load(name, sets or [])
    if as_json:
        values = loaded.profile.model_dump(mode="json", exclude_none=True)
        print_json(
            {"profile": values, "layers": loaded.resolved.layers, "origins": _origins(loaded)}
            if explain
            else values
        )
        return
    leaves = sorted(loaded.resolved.leaves.items())
    if explain:
        rows = [(dotted(p), str(e.value), e.origin.name, e.origin.comment or "") for p, e in leaves]
        print_table(("KEY", "VALUE", "FROM", "WHY"), rows)
        print(f"\nlayers, the lowest first: {', '.join(loaded.resolved.layers)}")
    else:
        print_table(("KEY", "VALUE"), [(dotted(path), str(entry.value)) for path, entry in leaves])


def _origins(loaded: Loaded) -> dict[str, dict[str, str | None]]:
    return {
        dotted(path): {"from": entry.origin.name, "why": entry.origin.comment}
        for path, entry in loaded.resolved.leaves.items()
    }
