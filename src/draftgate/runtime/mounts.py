"""What of this machine containers need to see: own profiles and own models; and why they could not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from draftgate.data import data_root
from draftgate.errors import Fault
from draftgate.profile.catalogue import Catalogue
from draftgate.profile.layers import Layer, Origin, key_path
from draftgate.profile.loader import Resolved
from draftgate.profile.model import Line
from draftgate.profile.overrides import PREFIX
from draftgate.render.service import MODELS, OWN_MODELS, PROFILES, USER, Mount

# A folder of a Hugging Face cache holds links to its neighbour.
_SNAPSHOTS = "snapshots"


@dataclass
class Mounts:
    """What a profile needs mounted.

    Attributes:
        files: own profiles and layers.
        models: own folders.
        places: options that say where those are in the container.
        faults: what a container could not see.
    """

    files: list[Mount] = field(default_factory=list)
    models: list[Mount] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def mounts(name: str, resolved: Resolved, catalogue: Catalogue) -> Mounts:
    """What the profile that was given as ``name`` needs."""
    made = Mounts()
    layers, _ = catalogue.chain(name)
    given = catalogue.find(name) if name.endswith(".toml") else None
    for layer in layers:
        if layer.path is not None and not _shipped(layer.path.parent):
            _add_file(made, layer, given, catalogue, layers)
    for path in ("target.model", "drafter.model"):
        _add_model(made, path, resolved)
    key, origin = resolved.profile.server.api_key_file, resolved.origin("server.api_key_file")
    if key is not None and origin is not None:
        made.faults += _closed("server.api_key_file", origin.name, [key], f"chown {USER}")
    return made


def _add_file(
    made: Mounts, layer: Layer, given: Path | None, catalogue: Catalogue, layers: Iterable[Layer]
) -> None:
    path = layer.path
    assert path is not None  # noqa: S101 - asked by the only caller
    for parent in layer.extends:
        if parent.endswith(".toml"):
            what = (
                f"containers find layers by name alone: put {parent} into a folder of DRAFTGATE_PROFILE_PATH"
            )
            made.faults.append(Fault("extends", layer.name, what))
    folder = next((one for one in catalogue.folders if path != given and path.is_relative_to(one)), None)
    inside = path.relative_to(folder) if folder else Path(path.name)
    hidden = catalogue.find(path.stem)
    if folder is None and any(one.path == hidden != path for one in layers):
        what = f"containers find it by its name, which is also that of {hidden}: call this file otherwise"
        made.faults.append(Fault("extends", layer.name, what))
    made.faults += _closed("(file)", layer.name, [path], "chmod o+r")
    made.files.append(Mount(str(path.resolve()), f"{PROFILES}/{inside}"))


def _add_model(made: Mounts, path: str, resolved: Resolved) -> None:
    entry = resolved.leaves.get(key_path(path))
    if entry is None or not isinstance(entry.value, str) or not entry.value.startswith("/"):
        return  # a Hugging Face id
    folder = Path(entry.value)
    # A GPU's containers see the host's folder of models under the same name.
    known = resolved.profile.engine.line is not Line.CPU and folder.is_relative_to(MODELS)
    if known or _says_what_comes_along(entry.origin):
        return
    source = folder.parent.parent if folder.parent.name == _SNAPSHOTS else folder
    for file in sorted(folder.iterdir()) if os.access(folder, os.R_OK) and folder.is_dir() else ():
        if not file.resolve().is_relative_to(source):
            what = f"{file} leads out of it, to {file.resolve()}, which containers do not see: copy it there"
            made.faults.append(Fault(path, entry.origin.name, what))
    made.faults += _closed(path, entry.origin.name, _with_files(folder), "chmod -R o+rX")
    target = f"{OWN_MODELS}/{path.partition('.')[0]}/{source.name}"
    made.models.append(Mount(str(source), target))
    made.places.append(f"{path}={target}/{folder.relative_to(source)}".removesuffix("/."))


def _with_files(folder: Path) -> Iterator[Path]:
    yield folder
    if folder.is_dir() and os.access(folder, os.R_OK):
        yield from (file for file in sorted(folder.iterdir()) if file.is_file())


def _closed(path: str, origin: str, files: Iterable[Path], mend: str) -> Iterator[Fault]:
    """A fault for the first of the files that is there, and not for the containers' user."""
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        wanted = 0o5 if file.is_dir() else 0o4
        if found.st_uid != USER and found.st_mode & wanted != wanted:
            yield Fault(path, origin, f"user {USER} of the containers may not read {file}: {mend} it")
            return


def _shipped(folder: Path) -> bool:
    return folder.resolve().is_relative_to(data_root() / "profiles")


def _says_what_comes_along(origin: Origin) -> bool:
    """Whether a file says so that the image holds too, with its own models beside it."""
    return _shipped(origin.folder) and not origin.name.startswith((PREFIX, "--"))
