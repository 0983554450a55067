"""What a model's config.json says, as far as draftgate needs it: the target's shape, the drafter's layers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import CheckpointUnreadable

CONFIG = "config.json"
TOP_LEVEL = "eagle_aux_hidden_state_layer_ids"
NESTED = f"eagle_config.{TOP_LEVEL}"
LAYER_IDS = "eagle_config.layer_ids"
TARGET_LAYER_IDS = "target_layer_ids"

Ids = tuple[int, ...]


@dataclass(frozen=True)
class TargetShape:
    """The target, as the choice of layers depends on it.

    Attributes:
        architecture: class name, such as ``KimiK25ForConditionalGeneration``.
        num_hidden_layers: decoder layers of its language model.
    """

    architecture: str
    num_hidden_layers: int


@dataclass(frozen=True)
class AuxIds:
    """The keys of a drafter's config.json that say which states of the target it takes.

    None is an absent key; an empty list is not the same to every engine. Keys of other methods
    (``dflash_config``, ``dspark_target_layer_ids``) are no part of an EAGLE-3 drafter.

    Attributes:
        top_level: ``eagle_aux_hidden_state_layer_ids`` (vLLM's and speculators' spelling).
        nested: the same within ``eagle_config`` (SGLang's and SpecForge's spelling).
        layer_ids: ``eagle_config.layer_ids``.
        target_layer_ids: ``target_layer_ids``.
        num_states: ``num_aux_hidden_states``.
        use_states: ``eagle_config.use_aux_hidden_state``.
    """

    top_level: Ids | None = None
    nested: Ids | None = None
    layer_ids: Ids | None = None
    target_layer_ids: Ids | None = None
    num_states: int | None = None
    use_states: bool = True


@dataclass(frozen=True)
class DrafterConfig:
    """An EAGLE-3 drafter.

    Attributes:
        architecture: the first of ``architectures``; of a speculators checkpoint ``Eagle3Speculator``.
        model_type: None where the key is missing.
        num_hidden_layers: its own layers.
        extra_norms: those of EAGLE-3.1 (``fc_norm``, ``norm_output``) that it was trained with.
    """

    architecture: str
    model_type: str | None
    num_hidden_layers: int
    aux: AuxIds
    extra_norms: tuple[str, ...] = ()


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, whole.

    Raises:
        CheckpointUnreadable: there is none, or it is not an object.
    """
    file = folder / CONFIG
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointUnreadable(
            f"a model's {CONFIG} cannot be read",
            where=str(file),
            why=error.strerror or str(error),
            next_step="name a folder that holds config.json and *.safetensors",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _broken(file, f"is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise _broken(file, "is not an object")
    return content


def read_target(folder: Path) -> TargetShape:
    """The shape of the target in ``folder``.

    Raises:
        CheckpointUnreadable: the file is missing or broken, or does not say.
    """
    file, config = folder / CONFIG, read_config(folder)
    # A multimodal model keeps its language model's keys apart: Kimi-K2.5, Llama 4.
    text = config.get("text_config", config)
    if not isinstance(text, dict):
        raise _broken(file, "text_config is not an object")
    return TargetShape(_architecture(file, config), _count(file, text, "num_hidden_layers"))


def read_drafter(folder: Path) -> DrafterConfig:
    """The drafter in ``folder``.

    Raises:
        CheckpointUnreadable: the file is missing or broken, or a key that is read has another type.
    """
    return drafter_config(read_config(folder), folder / CONFIG)


def drafter_config(config: dict[str, Any], file: Path) -> DrafterConfig:
    """The drafter that ``config`` describes; ``file`` is for the error.

    Raises:
        CheckpointUnreadable: a key that is read has another type.
    """
    nested = config.get("eagle_config")
    if nested is None:
        nested = {}
    if not isinstance(nested, dict):
        raise _broken(file, "eagle_config is not an object")
    # speculators keeps the drafter's own layer in transformer_layer_config.
    layer = config.get("transformer_layer_config", config)
    if not isinstance(layer, dict):
        raise _broken(file, "transformer_layer_config is not an object")
    model_type, use = config.get("model_type"), nested.get("use_aux_hidden_state", True)
    if not isinstance(use, bool):
        raise _broken(file, "eagle_config.use_aux_hidden_state is neither true nor false")
    return DrafterConfig(
        architecture=_architecture(file, config),
        model_type=model_type if isinstance(model_type, str) else None,
        num_hidden_layers=_count(file, layer, "num_hidden_layers"),
        aux=AuxIds(
            top_level=_ids(file, config, TOP_LEVEL),
            nested=_ids(file, nested, TOP_LEVEL, "eagle_config."),
            layer_ids=_ids(file, nested, "layer_ids", "eagle_config."),
            target_layer_ids=_ids(file, config, TARGET_LAYER_IDS),
            num_states=(
                _count(file, config, "num_aux_hidden_states")
                if config.get("num_aux_hidden_states") is not None
                else None
            ),
            use_states=use,
        ),
        extra_norms=tuple(name for name in ("fc_norm", "norm_output") if config.get(name)),
    )


def _architecture(file: Path, config: dict[str, Any]) -> str:
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    raise _broken(file, "architectures is not a list of names")


def _count(file: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise _broken(file, f"{key} is not a positive number: {value!r}")


def _ids(file: Path, config: dict[str, Any], key: str, prefix: str = "") -> Ids | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        return tuple(value)
    raise _broken(file, f"{prefix}{key} is not a list of whole numbers: {value!r}")


def _broken(file: Path, why: str) -> CheckpointUnreadable:
    return CheckpointUnreadable(f"a model's {CONFIG} is broken", where=str(file), why=why)
