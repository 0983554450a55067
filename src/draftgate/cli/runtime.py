"""Which runtime a verb is about: processes of this machine, or containers."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from draftgate.errors import EngineMissing

if TYPE_CHECKING:
    from draftgate.engine.pins import Pin


class Runtime(enum.StrEnum):
    NATIVE = "native"
    DOCKER = "docker"


Choice = Annotated[
    Runtime | None,
    typer.Option("--runtime", help="native or docker [default: whichever is there; native before docker]."),
]


def for_start(choice: Runtime | None, pin: Pin) -> Runtime:
    """Where an engine is to be started: as told, else native where it is installed, else docker if usable.

    Raises:
        DockerUnusable: docker was asked for and cannot be used.
        EngineMissing: neither is there.
    """
    from draftgate.runtime import containers
    from draftgate.runtime.environment import engine_python

    if choice is Runtime.DOCKER:
        containers.check()
        return choice
    try:
        engine_python(pin)
    except EngineMissing:
        if choice is Runtime.NATIVE or not containers.usable():
            raise
        return Runtime.DOCKER
    return Runtime.NATIVE


def of_what_runs(choice: Runtime | None, *, ours: bool = False) -> Runtime:
    """What `down`, `status` and `logs` are about: as told, else docker where only containers are there.

    Args:
        ours: whether untold only what `up` started here counts: the daemon may be other users' too.
    """
    from draftgate.runtime import containers, native
    from draftgate.runtime.state import State

    if choice is Runtime.DOCKER:
        containers.check()
    if choice is not None:
        return choice
    if native.status().state is not State.STOPPED or (ours and not containers.compose_file().is_file()):
        return Runtime.NATIVE
    return Runtime.DOCKER if containers.usable() and containers.containers() else Runtime.NATIVE
