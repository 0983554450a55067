"""`draftgate engine …`: environments of the pinned engines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.cli.output import print_json, print_table
from draftgate.cli.profiles import Json

if TYPE_CHECKING:
    from draftgate.runtime.environment import Progress

app = typer.Typer(
    help="Install, list and remove the engines' environments.", no_args_is_help=True, rich_markup_mode=None
)
Engine = Annotated[str, typer.Argument(metavar="ENGINE", help="An engine of `draftgate engine list`.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@app.command()
def install(
    name: Engine,
    force: Annotated[bool, typer.Option("--force", help="Make it anew although it is there.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Make the environment of an engine, from its lock."""
    from draftgate.runtime.environment import find_python, folder_of, install, installed, pin_named

    pin = pin_named(name)
    if installed(pin) and not force:
        print(f"{pin.id}: {pin.engine} {pin.version} is installed in {folder_of(pin)}")
        return
    print(f"{pin.id}: {pin.engine} {pin.version} with torch {pin.torch}, into {folder_of(pin)}")
    if dry_run:
        size = f"{pin.disk_bytes / 2**30:.0f} GiB"
        print(f"would be made with {find_python(pin)}, from {pin.lock}; needs {size} free")
        return
    with _Line() as line:
        environment = install(pin, line.show, force=force)
    print(f"{pin.id}: ready, Python {environment.python_version}, torch from {environment.torch_source}")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the pinned engines and whether they are installed."""
    from draftgate.engine.pins import PINS
    from draftgate.runtime.environment import folder_of, installed

    rows = [(pin, installed(pin)) for pin in PINS if pin.lock.exists()]
    if as_json:
        print_json(
            [
                {
                    "id": p.id,
                    "engine": p.engine,
                    "version": p.version,
                    "folder": str(folder_of(p)),
                    "made_at": e and e.made_at,
                }
                for p, e in rows
            ]
        )
        return
    print_table(
        ("ID", "ENGINE", "INSTALLED", "FOLDER"),
        [(p.id, f"{p.engine} {p.version}", e.made_at if e else "no", str(folder_of(p))) for p, e in rows],
    )


@app.command()
def python(name: Engine) -> None:
    """Print the interpreter of an engine's environment, to run something in it."""
    from draftgate.runtime.environment import engine_python, pin_named

    print(engine_python(pin_named(name)))


@app.command()
def remove(name: Engine, dry_run: DryRun = False) -> None:
    """Remove the environment of an engine."""
    from draftgate.runtime.environment import folder_of, pin_named, remove

    pin = pin_named(name)
    if dry_run:
        print(f"would remove {folder_of(pin)}")
    else:
        print(f"{pin.id}: {'removed' if remove(pin) else 'was not installed'}")


class _Line:
    """Progress on one line of a terminal; into a pipe one line for each step, packages counted by tens."""

    show: Callable[[Progress], None]

    def __enter__(self) -> _Line:
        self._tty = sys.stderr.isatty()
        self.show = self._rewrite if self._tty else self._append
        return self

    def __exit__(self, *_: object) -> None:
        if self._tty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _rewrite(self, progress: Progress) -> None:
        from shutil import get_terminal_size

        text = (
            progress.step if progress.total is None else f"[{progress.done}/{progress.total}] {progress.step}"
        )
        print(f"\r\033[K  {text[: get_terminal_size().columns - 3]}", end="", file=sys.stderr, flush=True)

    def _append(self, progress: Progress) -> None:
        if progress.total is None:
            print(f"  {progress.step}", file=sys.stderr, flush=True)
        elif progress.done is not None and (progress.done % 25 == 0 or progress.done == progress.total):
            print(f"  [{progress.done}/{progress.total}] {progress.step}", file=sys.stderr, flush=True)
