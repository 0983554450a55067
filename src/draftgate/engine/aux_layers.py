"""Which layers of the target a pinned engine feeds its EAGLE-3 drafter, and how to make it feed others.

A layer L here always means the **input** of the target's layer L (vLLM's and speculators' convention): 0 is
the embeddings, n, for n layers, the output of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from draftgate.checkpoint.config import (
    LAYER_IDS,
    NESTED,
    TARGET_LAYER_IDS,
    TOP_LEVEL,
    AuxIds,
    DrafterConfig,
    Ids,
    TargetShape,
)
from draftgate.engine.aux_rules import (
    LLAMA_DRAFTER,
    MLA_DRAFTER,
    SPECULATORS_DRAFTER,
    Family,
    Offset,
    Pinned,
    Rules,
    Width,
    family_of,
    rules_for,
)
from draftgate.errors import AuxLayersRefused

# vLLM takes a drafter of these types for the target's own MTP head and loads another class:
# vllm 0.19.1 config/speculative.py:229, vllm 0.33.0 config/speculative.py:749.
_TAKEN_FOR_MTP = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa")


@dataclass(frozen=True)
class Reading:
    """What an engine takes from a drafter's config.json.

    Attributes:
        key: the key that it takes the ids from; None where it falls back on its defaults.
        layers: the layers that it sets out to capture, as inputs, in that order; not yet checked.
    """

    key: str | None
    layers: Ids


def default_layers(target: TargetShape) -> Ids:
    """What every engine takes without ids.

    Sources: vllm 0.19.1 models/interfaces.py:1366, sglang 0.5.10.post1 models/llama.py:790.
    """
    layers = target.num_hidden_layers
    return (2, layers // 2, layers - 3)


def reading(pin: Pinned | str, target: TargetShape, ids: AuxIds) -> Reading:
    """Which key the engine reads, and which layers it makes of it.

    Raises:
        AuxLayersUnknown: the version or the target's implementation was not read.
    """
    rules = rules_for(pin)
    for key, offset in rules.keys_for(target):
        found = _value(ids, key)
        if found or (found is not None and rules.empty_counts):
            return Reading(key, _shifted(found, offset))
    return Reading(None, default_layers(target))


def captured(
    pin: Pinned | str,
    target: TargetShape,
    ids: AuxIds,
    *,
    drafter: str = LLAMA_DRAFTER,
    graphs: bool = True,
) -> Ids:
    """The layers whose inputs reach the drafter, ascending, as engines hand them over.

    Args:
        drafter: its architecture, which decides how many states its ``fc`` is made for.
        graphs: whether the engine runs with CUDA graphs (``execution.eager`` unset). A pin for CPUs has none,
            and is not affected.

    Raises:
        UnknownName: there is no such pin.
        AuxLayersRefused: the engine would fail at the first request, capture nothing without a word, or feed
            prefill and decode from different layers; also ids that repeat, and a version that was not read.
    """
    rules, family, read = rules_for(pin), family_of(target), reading(pin, target, ids)
    if not ids.use_states:
        raise _refused(rules, "feeds no layers", "eagle_config.use_aux_hidden_state is false", None)
    whence = read.key or "its defaults, because it reads no ids"
    where = f"{whence} → inputs of {_listed(read.layers)}"
    for layer in read.layers:
        why = _uncapturable(rules, family, target, layer)
        if why:
            raise _refused(rules, f"cannot feed the input of layer {layer}", why, where)
    layers = tuple(sorted(set(read.layers)))
    if len(layers) != len(read.layers):
        why = f"layers repeat, so {len(layers)} states come instead of {len(read.layers)}"
        if read.key is None:
            why += f": the defaults fall together for a target of {target.num_hidden_layers} layers"
        raise _refused(rules, f"would feed {_listed(layers)} only", why, where)
    width = _states(rules, drafter, ids)
    if len(layers) != width:
        made = "its parts disagree" if width is None else f"its fc is made for {width}"
        why = f"{len(layers)} states come to the drafter, and {made} ({rules.width.value})"
        raise _refused(rules, f"would feed {len(layers)} layers", why, where)
    if rules.single_skips_fc and len(layers) == 1:
        why = "a single state is as wide as the drafter, which then leaves its fc out without a word"
        raise _refused(rules, "cannot feed one layer alone", why, where)
    usual = tuple(sorted(set(default_layers(target))))
    if graphs and rules.graphs_take_defaults and layers != usual:
        why = (
            f"its CUDA graphs, which verify, take the inputs of {_listed(usual)} whatever the config says, "
            f"and its prefill those of {_listed(layers)}"
        )
        raise _refused(
            rules,
            f"cannot feed the inputs of {_listed(layers)} with CUDA graphs",
            why,
            where,
            f"take {_listed(usual)}, or execution.eager = true, or a newer line",
        )
    return layers


def expressed(
    pin: Pinned | str,
    target: TargetShape,
    aux_layers: Ids,
    *,
    drafter: str = LLAMA_DRAFTER,
    graphs: bool = True,
    base: AuxIds | None = None,
) -> AuxIds:
    """The ids to write, so that the pin captures exactly ``aux_layers``; found by asking `captured`.

    Both spellings are always written, so that no engine falls back on its defaults, and so that vLLM's other
    model runner reads the same.

    Args:
        base: the drafter's own keys; those that do not say which layers stay.

    Raises:
        UnknownName: there is no such pin.
        AuxLayersRefused: the pin cannot capture them.
    """
    wanted, refusal = tuple(sorted(aux_layers)), None
    for nested in _spellings(wanted):
        candidate = replace(base or AuxIds(), top_level=wanted, nested=nested, use_states=True)
        try:
            if captured(pin, target, candidate, drafter=drafter, graphs=graphs) == wanted:
                return candidate
        except AuxLayersRefused as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    raise _refused(rules_for(pin), f"cannot feed the inputs of {_listed(wanted)}", "no ids say that", None)


def loaded_as(rules: Rules, architecture: str) -> str:
    """The name under which the engine looks for a drafter's class."""
    known = architecture.startswith("Eagle3") or architecture.endswith("Eagle3")
    if rules.engine == "vllm" and not known and architecture not in rules.drafters:
        # vllm 0.19.1 transformers_utils/configs/eagle.py:55
        return f"Eagle3{architecture}"
    return architecture


def refuse_unloadable(pin: Pinned | str, drafter: DrafterConfig) -> None:
    """Nothing, where the pin loads a drafter of this architecture.

    Raises:
        UnknownName: there is no such pin.
        AuxLayersRefused: it does not; the reason says which it loads.
    """
    rules = rules_for(pin)
    if rules.engine == "vllm" and drafter.model_type in _TAKEN_FOR_MTP:
        why = f"model_type {drafter.model_type} is taken for the target's own MTP head"
        raise _refused(
            rules, f"does not load this {drafter.architecture}", why, None, "write deepseek_v2 there"
        )
    name = loaded_as(rules, drafter.architecture)
    if name not in rules.drafters:
        why = f"it loads {', '.join(sorted(rules.drafters))}"
        raise _refused(rules, f"does not load {drafter.architecture}", why, None)
    if name in rules.one_layer and drafter.num_hidden_layers != 1:
        why = f"it has {drafter.num_hidden_layers} layers, and one is all that is supported"
        raise _refused(rules, f"does not load this {name}", why, None)
    if drafter.extra_norms and name not in rules.extra_norms:
        why = f"it was trained with {' and '.join(drafter.extra_norms)}, which this version does not know"
        raise _refused(rules, f"does not load this {name} as it was trained", why, None)


def _value(ids: AuxIds, key: str) -> Ids | None:
    return {
        TOP_LEVEL: ids.top_level,
        NESTED: ids.nested,
        LAYER_IDS: ids.layer_ids,
        TARGET_LAYER_IDS: ids.target_layer_ids,
    }[key]


def _shifted(ids: Ids, offset: Offset) -> Ids:
    match offset:
        case Offset.NONE:
            return ids
        case Offset.ONE:
            return tuple(i + 1 for i in ids)
        case Offset.ONE_IF_FIRST_IS_ONE:
            return tuple(i + 1 for i in ids) if ids[:1] == (1,) else ids
        case _:
            assert_never(offset)


def _spellings(wanted: Ids) -> Iterator[Ids]:
    """Nested ids that may mean ``wanted``, the one that most engines understand first."""
    yield tuple(layer - 1 for layer in wanted)
    yield wanted
    # Engines test membership, so the order is free, and the first id may be another one than 1.
    yield wanted[1:] + wanted[:1]


def _uncapturable(rules: Rules, family: Family, target: TargetShape, layer: int) -> str | None:
    layers = target.num_hidden_layers
    if layer == 0 and family not in rules.embeddings:
        return f"{family.value} adds a residual before it captures, and layer 0 has none: it fails"
    if layer == layers and family not in rules.last_output:
        return (
            f"{family.value} looks before each layer only: the last one's output is never captured, silently"
        )
    if not 0 <= layer <= layers:
        return f"the target has {layers} layers: nothing is captured, silently"
    return None


def _states(rules: Rules, drafter: str, ids: AuxIds) -> int | None:
    """How many states the drafter's fc takes; None where the engine's parts disagree about it."""
    match rules.width:
        case Width.THREE:
            return 3
        case Width.CONFIG:
            # Of a speculators checkpoint vLLM keeps the top-level ids only (configs/speculators/algos.py:47).
            if drafter == SPECULATORS_DRAFTER:
                return 3
            usual = ids.num_states or len(ids.nested or ()) or 3
            if rules.engine == "sglang" and drafter == MLA_DRAFTER:
                # Its fc counts the ids, also at the top level; its buffers ask num_aux_hidden_states first.
                said = ids.top_level if ids.nested is None else ids.nested
                own = 3 if said is None else len(said)
                return own if ids.num_states in (None, own) else None
            return usual
        case _:
            assert_never(rules.width)


def _listed(layers: Ids) -> str:
    return ", ".join(map(str, layers)) or "no layer"


def _refused(
    rules: Rules, what: str, why: str, where: str | None, next_step: str | None = None
) -> AuxLayersRefused:
    return AuxLayersRefused(f"{rules.title} {what}", where=where, why=why, next_step=next_step)
