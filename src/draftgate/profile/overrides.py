"""What is set on top of a profile: ``DRAFTGATE_SET__path__to__key`` and ``--set path=value``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import tomlkit

from draftgate.errors import Fault
from draftgate.profile.layers import Layer, read_layer

PREFIX = "DRAFTGATE_SET__"


def from_environment(environ: Mapping[str, str], folder: Path) -> list[Layer]:
    """One layer for each variable, sorted by name so that their order is not the shell's."""
    layers = []
    for name in sorted(environ):
        if name.startswith(PREFIX):
            keys = name.removeprefix(PREFIX).split("__")
            if keys[0] == "engine_flags":
                # A variable's name holds no dash, an engine's flag no underscore.
                keys[1:] = [key.replace("_", "-") for key in keys[1:]]
            layers.append(_assignment(".".join(_quoted(key) for key in keys), environ[name], name, folder))
    return layers


def from_options(sets: Iterable[str], folder: Path) -> list[Layer]:
    """One layer for each ``path=value``, in the order given."""
    layers = []
    for text in sets:
        path, separator, value = text.partition("=")
        if separator:
            layers.append(_assignment(path.strip(), value.strip(), "--set", folder))
        else:
            shown = path if len(path) < 60 else path[:57] + "…"
            layers.append(
                Layer("--set", (), (), {}, (Fault(shown, "--set", "must have the form path=value"),))
            )
    return layers


def _assignment(path: str, value: str, name: str, folder: Path) -> Layer:
    """``path = value`` as a layer; what is not a TOML value is taken as text, as is everything in ``env``."""
    layer = read_layer(f"{path} = {value}", name, folder)
    if layer.faults or path.startswith("env."):
        layer = read_layer(f"{path} = {tomlkit.string(value).as_string()}", name, folder)
    if layer.extends or layer.unset or layer.faults:
        return Layer(name, (), (), {}, (Fault(path, name, "is not a path of a profile"),))
    return layer


def _quoted(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() else tomlkit.string(key).as_string()
