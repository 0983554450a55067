"""The target and the drafters against transformers' own model, and what engines demand of their sizes."""

from pathlib import Path

import pytest
import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from transformers import AutoModelForCausalLM

from tools.kimimodel import checkpoint
from tools.kimimodel.drafter import MlaDrafter
from tools.kimimodel.settings import FULL_SHAPE, MINI_SHAPE
from tools.kimimodel.target import KimiTarget
from tools.tinymodel.generate import greedy
from tools.tinymodel.layers import initialise, round_to_bf16


@pytest.fixture(scope="module")
def target() -> KimiTarget:
    made = KimiTarget(MINI_SHAPE)
    initialise(made, 3)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            # Larger than at the start of a training: attention must be far from uniform.
            parameter.mul_(3.0 if parameter.dim() > 1 and "embed" not in name else 1.0)
        for layer in made.model.layers[MINI_SHAPE.dense_layers :]:
            layer.mlp.gate.e_score_correction_bias.copy_(torch.tensor([0.3, -0.2, 0.1, 0.0]))
    round_to_bf16(made)
    return made.eval()


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(0, MINI_SHAPE.vocab, (2, 33), generator=torch.Generator().manual_seed(4))


@torch.no_grad()
def test_logits_and_aux_states_are_transformers(
    target: KimiTarget, tokens: torch.Tensor, tmp_path: Path
) -> None:
    checkpoint.write_target(target, tmp_path, quantised=False)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    found = theirs(tokens, output_hidden_states=True)
    logits, aux = target(tokens)
    assert logits.std() > 0.1
    torch.testing.assert_close(logits, found.logits, atol=1e-4, rtol=1e-4)
    wanted = torch.cat([found.hidden_states[layer] for layer in MINI_SHAPE.aux_layers], dim=-1)
    torch.testing.assert_close(aux, wanted, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_decoding_with_cached_latents_equals_one_pass(target: KimiTarget, tokens: torch.Tensor) -> None:
    wanted, _ = target(tokens)
    cache = target.cache(len(tokens), tokens.shape[1], tokens.device)
    first, _ = target(tokens[:, :20], cache)
    rest = [target(tokens[:, place : place + 1], cache, place)[0] for place in range(20, tokens.shape[1])]
    torch.testing.assert_close(torch.cat([first, *rest], dim=1), wanted, atol=1e-4, rtol=1e-4)
    texts = greedy(target, [[0, 5, 6], [0, 7]], 12)
    again = target(texts)[0].argmax(-1)
    assert texts[0, 3:].tolist() == again[0, 2:-1].tolist()
    assert texts[1, 2:].tolist() == again[1, 1:-1].tolist()


@torch.no_grad()
def test_the_quantised_module_is_what_the_checkpoint_restores_to(target: KimiTarget) -> None:
    stored = checkpoint.tensors(target)
    again = KimiTarget(MINI_SHAPE)
    again.load_state_dict(target.state_dict())
    checkpoint.quantise(again)
    restored = checkpoint.tensors(again, quantised=False)
    assert "model.layers.0.mlp.gate_proj.weight" in stored
    for name in ("gate_proj", "up_proj", "down_proj"):
        module = f"model.layers.7.mlp.experts.3.{name}"
        weight = restored[f"{module}.weight"]
        assert stored[f"{module}.weight_shape"].tolist() == list(weight.shape)
        integers = unpack_from_int32(stored[f"{module}.weight_packed"], 4, weight.shape)
        scales = stored[f"{module}.weight_scale"].float().repeat_interleave(32, dim=1)
        assert torch.equal((integers.float() * scales).bfloat16(), weight)
    assert stored["model.layers.1.mlp.gate.e_score_correction_bias"].dtype == torch.float32
    quantised = [name for name in stored if name.endswith("weight_packed")]
    layers = MINI_SHAPE.layers - MINI_SHAPE.dense_layers
    assert len(quantised) == 3 * MINI_SHAPE.experts * layers


def test_sizes_fit_the_engines_kernels() -> None:
    shape = FULL_SHAPE
    assert shape.hidden % 128 == 0
    assert shape.expert_mlp % (8 * 64) == 0
    assert shape.heads % 8 == 0
    assert shape.layers >= 12
    assert shape.aux_layers == (2, shape.layers // 2, shape.layers - 3)
    # On the meta device nothing is allocated.
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in KimiTarget(shape).parameters())
    assert 30e6 < count < 150e6


def test_the_mla_drafter_has_the_names_that_engines_load() -> None:
    drafter = MlaDrafter(MINI_SHAPE, torch.arange(MINI_SHAPE.draft_vocab))
    names = set(drafter.state_dict())
    assert {"fc.weight", "d2t", "t2d", "lm_head.weight", "norm.weight", "midlayer.hidden_norm.weight"} < names
    assert drafter.state_dict()["midlayer.self_attn.kv_a_proj_with_mqa.weight"].shape == (512 + 64, 2 * 128)
    config = checkpoint.mla_drafter_config(MINI_SHAPE)
    assert config["architectures"] == ["Eagle3DeepseekV2ForCausalLM"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
