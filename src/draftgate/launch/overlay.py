"""The drafter as a pin must find it: its weights linked, its config.json rewritten for the asked layers.

The drafter's own folder is never touched. An overlay lies under ``DRAFTGATE_DATA_DIR/overlays``, at a path
made from what is in it, so the same drafter, pin and layers give the same folder, made once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.checkpoint.config import (
    CONFIG,
    TOP_LEVEL,
    AuxIds,
    DrafterConfig,
    Ids,
    TargetShape,
    drafter_config,
    read_config,
)
from draftgate.engine.aux_layers import captured, expressed, reading, refuse_unloadable
from draftgate.engine.aux_rules import Pinned
from draftgate.errors import AuxLayersRefused, AuxLayersUnknown
from draftgate.host.files import private_folder, unusable
from draftgate.settings import settings

_SETTING = "DRAFTGATE_DATA_DIR"


@dataclass(frozen=True)
class Plan:
    """What the pin will capture, and what must be written for it.

    Attributes:
        layers: the layers whose inputs reach the drafter, ascending; None where none were asked for and what
            this pin does with this target was never read.
        key: the key of the drafter's own config.json that this pin reads; None where it takes its defaults.
        written: the ids of the rewritten config.json; None where the drafter's own will do.
    """

    layers: Ids | None
    key: str | None
    written: AuxIds | None


def plan(
    drafter: DrafterConfig,
    pin: Pinned | str,
    target: TargetShape,
    aux_layers: Ids | None,
    *,
    graphs: bool = True,
) -> Plan:
    """How ``pin`` gets ``aux_layers`` to ``drafter``; no file is read or written.

    The drafter's own config.json will do when it gives these layers and is not passed over for the pin's
    defaults, which would be chance.

    Args:
        aux_layers: as inputs of target layers, of ``drafter.aux_layers``; None is what its config.json gives.
        graphs: as of `draftgate.engine.aux_layers.captured`.

    Raises:
        UnknownName: there is no such pin.
        AuxLayersRefused: the pin does not load the drafter, or cannot capture these layers.
    """
    architecture = drafter.architecture
    try:
        refuse_unloadable(pin, drafter)
        key = reading(pin, target, drafter.aux).key
    except AuxLayersUnknown:
        if aux_layers is None:
            return Plan(None, None, None)
        raise
    if aux_layers is None:
        return Plan(captured(pin, target, drafter.aux, drafter=architecture, graphs=graphs), key, None)
    wanted = tuple(sorted(aux_layers))
    trained = drafter.aux.num_states or len(drafter.aux.nested or drafter.aux.top_level or ()) or 3
    if len(wanted) != trained:
        why = f"its config.json says so: its fc takes {trained} states, however many engines would feed it"
        raise AuxLayersRefused(f"the drafter was trained on {trained} layers, not {len(wanted)}", why=why)
    passed_over = key is None and (drafter.aux.top_level or drafter.aux.nested) is not None
    try:
        own = captured(pin, target, drafter.aux, drafter=architecture, graphs=graphs)
    except AuxLayersRefused:
        own = None
    if own == wanted and not passed_over:
        return Plan(wanted, key, None)
    written = expressed(pin, target, wanted, drafter=architecture, graphs=graphs, base=drafter.aux)
    return Plan(wanted, key, written)


@dataclass(frozen=True)
class Overlay:
    """A drafter's folder with another config.json, made or not.

    Attributes:
        path: the same for the same content.
        ids: what its config.json says.
        content: its config.json.
        links: everything else, by name, in the drafter's own folder.
    """

    path: Path
    ids: AuxIds
    content: str
    links: dict[str, str]

    def make(self) -> Path:
        """Write it, where it is not there whole.

        Raises:
            FolderUnusable: it cannot be written.
        """
        private_folder(settings().data_dir, _SETTING)
        private_folder(self.path.parent, _SETTING)
        try:
            if not _is(self.path, self.content, self.links):
                _make(self.path, self.content, self.links)
        except OSError as error:
            raise unusable(self.path, _SETTING, error) from error
        return self.path


def overlay(
    folder: Path,
    pin: Pinned | str,
    target: TargetShape,
    aux_layers: Ids | None,
    *,
    name: str | None = None,
    graphs: bool = True,
) -> Overlay | None:
    """What to give the engine instead of ``folder``; None where that will do. Nothing is written.

    Args:
        folder: the drafter's, as `draftgate.checkpoint.folder.find_folder` gives it.
        name: begins the overlay's name; the folder's own if None.

    Raises:
        CheckpointUnreadable: the drafter's config.json is missing or broken.
        FolderUnusable: the drafter's folder cannot be listed.
        UnknownName, AuxLayersRefused: as of `plan`.
    """
    config = read_config(folder)
    found = plan(drafter_config(config, folder / CONFIG), pin, target, aux_layers, graphs=graphs)
    if found.written is None:
        return None
    content = rewritten(config, found.written)
    folder = folder.resolve()
    try:
        links = {entry.name: str(entry) for entry in sorted(folder.iterdir()) if entry.name != CONFIG}
    except OSError as error:
        raise unusable(folder, "drafter.model", error) from error
    digest = hashlib.sha256(json.dumps([content, links]).encode()).hexdigest()[:16]
    label = re.sub(r"[^\w.-]+", "--", name or folder.name).strip(".-") or "drafter"
    path = settings().data_dir / "overlays" / f"{label}-{digest}"
    return Overlay(path, found.written, content, links)


def rewritten(config: dict[str, Any], ids: AuxIds) -> str:
    """config.json with both spellings of ``ids``, and nothing else changed."""
    nested = {**(config.get("eagle_config") or {}), "use_aux_hidden_state": ids.use_states}
    nested[TOP_LEVEL] = list(ids.nested or ())
    changed = {**config, TOP_LEVEL: list(ids.top_level or ()), "eagle_config": nested}
    return json.dumps(changed, indent=2, ensure_ascii=False) + "\n"


def _is(path: Path, content: str, links: dict[str, str]) -> bool:
    """Whether an overlay of an earlier start is still whole."""
    if not path.is_dir():
        return False
    there = {entry.name: os.readlink(entry) for entry in path.iterdir() if entry.is_symlink()}
    config = path / CONFIG
    return there == links and config.is_file() and config.read_text(encoding="utf-8") == content


def _make(path: Path, content: str, links: dict[str, str]) -> None:
    """Make it beside its place, then move it there, so that no engine sees half of it."""
    scratch = Path(tempfile.mkdtemp(dir=path.parent, prefix=".making-"))
    try:
        for name, target in links.items():
            # Absolute links, not copies (gigabytes) nor hard links (other file systems, read-only models).
            (scratch / name).symlink_to(target)
        (scratch / CONFIG).write_text(content, encoding="utf-8")
        if path.exists() and not _is(path, content, links):
            shutil.rmtree(path)
        try:
            scratch.rename(path)
        except OSError as error:
            # Another start was faster; the same name is the same content.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
