"""The five faults: what each changes in a good drafter's weights or config.json, and how to say it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.checkpoint.config import (
    CONFIG,
    TARGET_LAYER_IDS,
    AuxIds,
    Ids,
    TargetShape,
    drafter_config,
    read_config,
)
from draftgate.engine.aux_layers import default_layers
from draftgate.errors import CheckpointUnreadable
from draftgate.launch.overlay import rewritten
from tools.wrongdrafters.weights import FILE, Weights, column_blocks_moved, random_values, read, write


@dataclass(frozen=True)
class Drafter:
    """A good drafter.

    Attributes:
        target: only needed where its config.json names no layers.
        seed: of what is made at random.
    """

    folder: Path
    config: dict[str, Any]
    weights: Weights
    target: TargetShape | None
    seed: int


# What a fault gives: other weights, another config.json, or None for what stays.
Change = tuple[Weights | None, str | None]


def _aux_order(drafter: Drafter) -> Change:
    name = _there(drafter, "fc.weight")
    dtype, shape, data = drafter.weights.tensors[name]
    states = _states(drafter)
    if len(shape) != 2 or shape[1] % states:
        raise CheckpointUnreadable(f"{name} is not made for {states} states", why=f"its shape is {shape}")
    moved = column_blocks_moved(data, shape[0], tuple(reversed(range(states))))
    return drafter.weights.with_bytes(name, dtype, shape, moved), None


def _one_layer_early(drafter: Drafter) -> Change:
    aux = drafter_config(drafter.config, drafter.folder / CONFIG).aux
    top = aux.top_level or _as_inputs(aux)
    if not top:
        if drafter.target is None:
            raise CheckpointUnreadable(
                f"{CONFIG} names no layers, and the engines' defaults depend on the target",
                where=str(drafter.folder),
                next_step="name the target's folder with --target",
            )
        top = default_layers(drafter.target)
    nested = aux.nested or tuple(i - 1 for i in top)
    earlier = replace(aux, top_level=_one_less(top), nested=_one_less(nested))
    config = dict(drafter.config)
    # Engines that read one of these as well find the same layers in it.
    if aux.target_layer_ids:
        config[TARGET_LAYER_IDS] = list(_one_less(aux.target_layer_ids))
    if aux.layer_ids:
        config["eagle_config"] = {**config["eagle_config"], "layer_ids": list(_one_less(aux.layer_ids))}
    return None, rewritten(config, earlier)


def _as_inputs(aux: AuxIds) -> Ids:
    """The layers of a config.json without the top-level key: as `draftgate.engine.aux_rules` has it, nested
    and target_layer_ids count outputs, layer_ids inputs.
    """
    if outputs := aux.nested or aux.target_layer_ids:
        return tuple(i + 1 for i in outputs)
    return aux.layer_ids or ()


def _one_less(ids: Ids) -> Ids:
    if min(ids) < 1:
        raise CheckpointUnreadable("no layer is earlier than the first", why=f"{CONFIG} names {ids}")
    return tuple(i - 1 for i in ids)


def _no_d2t(drafter: Drafter) -> Change:
    return drafter.weights.without(_there(drafter, "d2t")), None


def _no_lm_head(drafter: Drafter) -> Change:
    return drafter.weights.without(_there(drafter, "lm_head.weight")), None


def _random_embedding(drafter: Drafter) -> Change:
    shape = (int(drafter.config["vocab_size"]), int(drafter.config["hidden_size"]))
    name = drafter.weights.named("embed_tokens.weight")
    dtype = drafter.weights.tensors[_there(drafter, "fc.weight")][0]
    if name is not None:
        dtype, shape = drafter.weights.tensors[name][0], (drafter.weights.tensors[name][1][0], shape[1])
    values = random_values(dtype, shape[0] * shape[1], drafter.seed)
    return drafter.weights.with_bytes(name or "embed_tokens.weight", dtype, shape, values), None


@dataclass(frozen=True)
class Fault:
    """Attributes:
    name: also the folder's.
    note: what is wrong, for the folder's README.md.
    """

    name: str
    note: str
    change: Callable[[Drafter], Change]


FAULTS = (
    Fault(
        "aux-order",
        "The column blocks of `fc.weight` are in reverse: it takes the deepest of the target's states for "
        "the first, as when training and serving order them differently.",
        _aux_order,
    ),
    Fault(
        "one-layer-early",
        "Every spelling of the aux layer ids in `config.json` is one lower: `fc` is fed the states one "
        "layer before those it was trained on. (SGLang from 0.5.13 on adds one to nested ids that begin with "
        "1, for DeepSeek-style targets only: there state `drafter.aux_layers` in the profile instead.)",
        _one_layer_early,
    ),
    Fault(
        "no-d2t",
        "`d2t` is missing: nothing says which of the target's tokens the draft vocabulary holds.",
        _no_d2t,
    ),
    Fault(
        "random-embedding",
        "`embed_tokens.weight` is random, where the good drafter has its own or takes the target's.",
        _random_embedding,
    ),
    Fault("no-lm-head", "`lm_head.weight` is missing.", _no_lm_head),
)


def make(
    drafter: Path, out: Path, *, target: TargetShape | None = None, seed: int = 7
) -> dict[str, Path | CheckpointUnreadable]:
    """Write the wrong drafters into folders of ``out``, by fault; the reason where one cannot be made.

    Raises:
        CheckpointUnreadable: the good drafter cannot be read.
    """
    good = Drafter(drafter, read_config(drafter), read(drafter), target, seed)
    made: dict[str, Path | CheckpointUnreadable] = {}
    for fault in FAULTS:
        folder = out / fault.name
        try:
            weights, config = fault.change(good)
        except CheckpointUnreadable as error:
            made[fault.name] = error
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in drafter.iterdir():
            if file.is_file() and not file.name.startswith((".", FILE)) and file.suffix != ".safetensors":
                shutil.copyfile(file, folder / file.name)
        if config is not None:
            (folder / CONFIG).write_text(config, encoding="utf-8")
        write(weights or good.weights, folder)
        note = f"# Wrong on purpose: {fault.name}\n\n{fault.note}\n\nAll else is as in `{drafter.name}`.\n"
        (folder / "README.md").write_text(note, encoding="utf-8")
        made[fault.name] = folder
    return made


def _there(drafter: Drafter, name: str) -> str:
    found = drafter.weights.named(name)
    if found is None:
        raise CheckpointUnreadable(f"the drafter has no {name}", where=str(drafter.folder))
    return found


def _states(drafter: Drafter) -> int:
    aux = drafter_config(drafter.config, drafter.folder / CONFIG).aux
    return aux.num_states or len(aux.nested or aux.top_level or ()) or 3
