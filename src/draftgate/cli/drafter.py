"""`draftgate drafter …`: what a pinned engine makes of a drafter, before it is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json
from draftgate.errors import AuxLayersRefused
from draftgate.profile.model import EngineName, Line

if TYPE_CHECKING:
    from draftgate.checkpoint.config import DrafterConfig, Ids, TargetShape
    from draftgate.engine.aux_rules import Pinned
    from draftgate.launch.overlay import Plan

app = typer.Typer(help="Look at a drafter before it is served.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Keep `layers` a verb of its own while it is the only one."""


@app.command()
def layers(
    drafter: Annotated[
        str,
        typer.Option("--drafter", metavar="FOLDER|NAME", help="The drafter: a folder or Hugging Face id."),
    ],
    pin: Annotated[
        str | None,
        typer.Option("--pin", help="One pin, such as sglang-cuda12, or custom; all of them if left out."),
    ] = None,
    engine: Annotated[
        EngineName | None, typer.Option("--engine", help="With --pin custom: what the own build is.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--source", help="With --pin custom: its interpreter or its wheel, as engine.source."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="FOLDER|NAME", help="The target's folder or id; Kimi-K2.5 if left out."
        ),
    ] = None,
    aux_layers: Annotated[
        str | None,
        typer.Option(
            "--aux-layers",
            metavar="L,L,L",
            help="What to capture instead, as inputs of target layers: 2,30,58.",
        ),
    ] = None,
    eager: Annotated[
        bool, typer.Option("--eager", help="Without CUDA graphs, as execution.eager = true.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say which layers of the target each pin feeds the drafter, from which key, and what to write."""
    from draftgate.checkpoint.config import read_drafter, read_target
    from draftgate.checkpoint.folder import find_folder
    from draftgate.engine.aux_rules import KIMI_K25, pin_ids

    config = read_drafter(find_folder(drafter))
    shape = KIMI_K25 if target is None else read_target(find_folder(target))
    asked = _asked(aux_layers)
    pinned: tuple[Pinned, ...] | tuple[str, ...] = (pin,) if pin else pin_ids()
    if (pin == Line.CUSTOM) is not (source is not None) or (engine is None) is not (source is None):
        raise typer.BadParameter("--pin custom, --engine and --source go together", param_hint="--pin")
    if engine is not None and source is not None:
        from draftgate.engine.custom import custom

        pinned = (custom(engine, source)[0],)
    rows = [_row(one, config, shape, asked, graphs=not eager) for one in pinned]
    if pin and rows[0].refusal:
        raise rows[0].refusal
    if as_json:
        print_json(
            {
                "drafter": drafter,
                "architecture": config.architecture,
                "target": {"architecture": shape.architecture, "num_hidden_layers": shape.num_hidden_layers},
                "aux_layers": asked,
                "pins": [row.as_json() for row in rows],
            }
        )
        return
    print(f"drafter: {drafter} ({config.architecture})")
    assumed = "" if target is not None else "; assumed, name yours with --target"
    print(f"target:  {shape.architecture}, {shape.num_hidden_layers} layers{assumed}")
    print("CAPTURED are inputs of target layers; layer L's input is the output of layer L-1.\n")
    print_table(("PIN", "CAPTURED", "OWN KEY", "OVERLAY"), [row.cells() for row in rows])


@dataclass(frozen=True)
class _Row:
    """One pin: a plan, or the refusal that stands for it."""

    pin: str
    plan: Plan | None
    refusal: AuxLayersRefused | None

    def cells(self) -> tuple[str, ...]:
        if self.plan is None:
            why = f"{self.refusal}: {self.refusal.why}" if self.refusal else ""
            return (self.pin, "refused", "", why)
        written = self.plan.written
        wrote = "not needed"
        if written is not None:
            wrote = f"top level {_list(written.top_level)}, nested {_list(written.nested)}"
        return (self.pin, _list(self.plan.layers), self.plan.key or "none: its defaults", wrote)

    def as_json(self) -> dict[str, object]:
        if self.plan is None:
            return {"pin": self.pin, "refused": self.refusal.as_json() if self.refusal else None}
        written = self.plan.written
        overlay = None if written is None else {"top_level": written.top_level, "nested": written.nested}
        return {"pin": self.pin, "captured": self.plan.layers, "key": self.plan.key, "overlay": overlay}


def _row(
    pinned: Pinned | str, config: DrafterConfig, shape: TargetShape, asked: Ids | None, *, graphs: bool
) -> _Row:
    from draftgate.launch.overlay import plan

    pin = pinned if isinstance(pinned, str) else f"custom ({pinned.distribution} {pinned.version})"
    try:
        return _Row(pin, plan(config, pinned, shape, asked, graphs=graphs), None)
    except AuxLayersRefused as error:
        return _Row(pin, None, error)


def _asked(text: str | None) -> Ids | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"not numbers with commas between: {text!r}") from error


def _list(ids: Ids | None) -> str:
    return "unknown" if ids is None else ", ".join(map(str, ids))
