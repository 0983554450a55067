"""Where profiles and layers lie, and how a name becomes a chain of layers."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.errors import Fault, UnknownName
from draftgate.profile.layers import Layer, read_layer


@dataclass(frozen=True)
class Catalogue:
    """Folders with ``NAME.toml`` profiles and ``layers/NAME.toml``, searched in order."""

    folders: tuple[Path, ...]

    def names(self) -> list[str]:
        """All profiles, sorted; a name in an earlier folder hides the same name in a later one."""
        return sorted({file.stem for folder in self.folders for file in folder.glob("*.toml")})

    def find(self, name: str) -> Path | None:
        """The file of a profile or a layer; a name with ``.toml`` at its end is a path of its own."""
        if name.endswith(".toml"):
            path = Path(os.path.expanduser(name))
            return path if os.path.isfile(path) else None
        candidates = (folder / f"{name}.toml" for folder in self.folders)
        # Not Path.exists, which raises on a name longer than the file system takes. What is there and cannot
        # be read hides the same name in a later folder too: reading it says why.
        return next((path for path in candidates if os.path.lexists(path)), None)

    def chain(self, name: str) -> tuple[list[Layer], list[Fault]]:
        """The layers of a profile, the lowest first.

        A layer that is reached twice counts where it is reached first, so that a shared base does not
        override what stands between.

        Raises:
            UnknownName: there is no profile of that name.
        """
        path = self.find(name)
        if path is None:
            near = nearest(name, [one for one in self.names() if one != name])
            hint = f"did you mean {near!r}? " if near else ""
            raise UnknownName(
                f"there is no profile {name!r}",
                where=", ".join(str(folder) for folder in self.folders),
                next_step=f"{hint}draftgate profiles lists them all",
            )
        layers: list[Layer] = []
        faults: list[Fault] = []
        self._collect(path, (), {}, layers, faults)
        return layers, faults

    def _collect(
        self,
        path: Path,
        open_names: tuple[str, ...],
        done: dict[Path, None],
        layers: list[Layer],
        faults: list[Fault],
    ) -> None:
        resolved = path.resolve()
        if resolved in done:
            return
        layer = self._read(path)
        faults += layer.faults
        for parent in layer.extends:
            parent_path = self.find(parent)
            if parent_path is None:
                known = [*self.names(), *self._layer_names()]
                faults.append(
                    Fault("extends", layer.name, f"there is no layer {parent!r}", nearest(parent, known))
                )
            elif self._display(parent_path) in (*open_names, layer.name):
                circle = " → ".join([*open_names, layer.name, self._display(parent_path)])
                faults.append(Fault("extends", layer.name, f"goes in a circle: {circle}"))
            else:
                self._collect(parent_path, (*open_names, layer.name), done, layers, faults)
        done[resolved] = None
        layers.append(layer)

    def _read(self, path: Path) -> Layer:
        name = self._display(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            return Layer(name, (), (), {}, (Fault("(file)", name, f"cannot be read: {error}"),))
        return replace(read_layer(text, name, path.resolve().parent), path=path)

    def _layer_names(self) -> list[str]:
        return sorted(
            {f"layers/{file.stem}" for folder in self.folders for file in folder.glob("layers/*.toml")}
        )

    def _display(self, path: Path) -> str:
        for folder in self.folders:
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return str(path)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, or None when none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)
