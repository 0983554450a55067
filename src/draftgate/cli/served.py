"""What `launch` serves in the place of a profile's drafter; the verbs that only show a command say it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftgate.cli.load import Loaded
from draftgate.errors import CheckpointUnreadable, ProfileError

if TYPE_CHECKING:
    from draftgate.launch.overlay import Overlay


def served_drafter(loaded: Loaded) -> Overlay | None:
    """The overlay that makes the pin feed it ``drafter.aux_layers``; None where its own folder will do.

    Nothing is written. What the drafter's own config.json says is checked too.

    Raises:
        ProfileError, AuxLayersRefused: the pin cannot serve this drafter so.
        CheckpointUnreadable: what decides it is not on this machine.
    """
    profile, drafter, target = loaded.profile, loaded.profile.drafter, loaded.profile.target
    if drafter is None:
        return None
    from draftgate.checkpoint.config import read_drafter, read_target
    from draftgate.checkpoint.folder import find_folder
    from draftgate.launch.overlay import overlay

    try:
        folder = find_folder(drafter.model, drafter.revision)
        config = read_drafter(folder)
    except CheckpointUnreadable:
        if drafter.aux_layers is None and not drafter.model.startswith("/"):
            return None  # the engine fetches it
        raise
    if drafter.architecture not in (None, config.architecture):
        what = f"its config.json says {config.architecture}"
        raise ProfileError(profile.name, (loaded.fault("drafter.architecture", what),))
    known = drafter.model_copy(update={"architecture": config.architecture})
    loaded.refuse(profile.model_copy(update={"drafter": known}))
    try:
        shape = read_target(find_folder(target.model, target.revision))
    except CheckpointUnreadable:
        if drafter.aux_layers is None:
            return None  # the engine fetches it, and takes what the drafter's config.json gives
        raise
    graphs = not profile.execution.eager
    return overlay(folder, loaded.pin, shape, drafter.aux_layers, name=drafter.model, graphs=graphs)


@dataclass(frozen=True)
class Said:
    """What to say beside a command that names the drafter as the profile does.

    Attributes:
        overlay: what is served instead; None where that cannot be told here.
        unread: why it cannot be told.
    """

    aux_layers: tuple[int, ...]
    overlay: Overlay | None
    unread: CheckpointUnreadable | None

    def text(self, title: str) -> str:
        layers = ", ".join(map(str, self.aux_layers))
        if self.overlay is not None:
            return (
                f"draftgate launch serves {self.overlay.path} in the drafter's place: "
                f"its config.json makes {title} feed it {layers}"
            )
        why = f" ({self.unread.where}: {self.unread})" if self.unread else ""
        return (
            f"where the drafter's config.json does not make {title} feed it {layers}, draftgate launch "
            f"serves an overlay that does, in its place; which of these cannot be told here{why}"
        )

    def as_json(self) -> dict[str, object]:
        made = self.overlay
        return {
            "aux_layers": list(self.aux_layers),
            "path": str(made.path) if made else None,
            "top_level": made.ids.top_level if made else None,
            "nested": made.ids.nested if made else None,
            "unknown": self.unread.as_json() if self.unread else None,
        }


def said_of_drafter(loaded: Loaded) -> Said | None:
    """None where the drafter is served as the command names it.

    Raises:
        ProfileError, AuxLayersRefused: as of `served_drafter`.
    """
    drafter, unread, found = loaded.profile.drafter, None, None
    try:
        found = served_drafter(loaded)
    except CheckpointUnreadable as error:
        unread = error
    if drafter is None or drafter.aux_layers is None or not (found or unread):
        return None
    return Said(drafter.aux_layers, found, unread)
