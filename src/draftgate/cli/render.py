"""`draftgate render`: the exact command that a profile starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from draftgate.cli.load import Loaded, catalogue, load
from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json, Sets
from draftgate.cli.served import said_of_drafter
from draftgate.errors import ProfileError
from draftgate.profile.model import Line
from draftgate.render.command import Format, as_argv, as_env, as_json, as_shell, explained


def render(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="PROFILE", help="A profile's name, or the path of a .toml file; compose: or none."
        ),
    ] = None,
    sets: Sets = None,
    format_: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.SHELL,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say where each word comes from, and why.")
    ] = False,
    as_json_: Json = False,
) -> None:
    """Print the engine's command and environment; nothing is started.

    --format compose prints a compose.yaml, with every profile where none is named.
    """
    if format_ is Format.COMPOSE:
        print(compose_text([name] if name else catalogue().names(), sets or []), end="")
        return
    if name is None:
        raise typer.BadParameter("name a profile", param_hint="PROFILE")
    loaded = load(name, sets or [])
    drafter = said_of_drafter(loaded)
    text = drafter.text(loaded.contract.title) if drafter else None
    rows = explained(loaded.command, lambda path: _origin(loaded, path)) if explain else []
    if explain and text:
        key = "drafter.aux_layers"
        said_by, comment = _origin(loaded, key)
        rows.append(("(overlay)", key, said_by, " ".join(filter(None, [comment, f"{text}."]))))
    if as_json_ or format_ is Format.JSON:
        words = [{"word": w, "key": k, "from": f, "why": y or None} for w, k, f, y in rows]
        served = {"overlay": drafter.as_json() if drafter else None}
        print_json(as_json(loaded.command) | served | ({"explained": words} if explain else {}))
    elif explain:
        print_table(("WORD", "KEY", "FROM", "WHY"), rows)
    elif format_ is Format.ARGV:
        print(as_argv(loaded.command))
    elif format_ is Format.ENV:
        print(as_env(loaded.command))
    else:
        print(as_shell(loaded.command))
    if text:
        print(f"note: {text}", file=sys.stderr)


def compose_text(names: Sequence[str], sets: Sequence[str]) -> str:
    """compose.yaml for these profiles, with the environment's values and ``sets`` on top of each.

    Raises:
        ProfileError: also where a container could not see what a profile names.
    """
    from draftgate.launch.process import stop_limit
    from draftgate.profile.overrides import PREFIX
    from draftgate.render.compose import as_compose
    from draftgate.render.service import Service, Statements
    from draftgate.runtime.mounts import mounts
    from draftgate.settings import Settings

    variables = tuple((name, os.environ[name]) for name in sorted(os.environ) if name.startswith(PREFIX))
    services = []
    for name in names:
        loaded = load(name, sets)
        if loaded.pin.line is Line.CUSTOM:
            what = "an own build has no image: serve it natively"
            raise ProfileError(name, (loaded.fault("engine.line", what),))
        own = mounts(name, loaded.resolved, catalogue())
        if own.faults:
            raise ProfileError(name, tuple(own.faults))
        services.append(
            Service(
                loaded.profile,
                loaded.pin,
                loaded.contract,
                stop_limit(loaded.profile.launch.drain_seconds),
                Statements(tuple(own.files), variables, tuple(sets)),
                tuple(own.models),
                tuple(own.places),
            )
        )
    # Not this user's own index: the file is for everybody.
    return as_compose(services, Settings.model_fields["torch_index"].default)


def _origin(loaded: Loaded, path: str) -> tuple[str, str | None]:
    found = loaded.resolved.origin(path)
    return (found.name, found.comment) if found else ("default", None)
