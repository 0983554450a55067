"""The checkpoints in the layout that engines load: names, config.json, experts cut apart and quantised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools.tinymodel import export
from tools.tinymodel.export import Json
from tools.tinymodel.vocabulary import BOS_ID, EOS_ID

from . import int4
from .experts import Experts
from .settings import KimiShape
from .target import KimiTarget

BIAS = "e_score_correction_bias"


def wide_names(target: KimiTarget) -> Iterator[str]:
    """Yield the names of the modules that hold all routed experts side by side."""
    for number, layer in enumerate(target.model.layers):
        if isinstance(layer.mlp, Experts):
            yield from (f"model.layers.{number}.mlp.experts.{part}_proj" for part in ("gate", "up", "down"))


def parts(name: str, matrix: Tensor, shape: KimiShape) -> Iterator[tuple[str, Tensor]]:
    """Yield each expert's name and its part of a wide matrix, whose outputs or inputs (`down`) are theirs."""
    experts, projection = name.rsplit(".", 1)
    theirs = 1 if projection == "down_proj" else 0
    for number, part in enumerate(matrix.split(shape.expert_mlp, dim=theirs)):
        yield f"{experts}.{number}.{projection}", part.contiguous()


def tensors(target: KimiTarget, *, quantised: bool = True) -> dict[str, Tensor]:
    """Return the tensors as stored: routed experts INT4, the router's bias float32, the rest bfloat16."""
    wide = set(wide_names(target))
    stored: dict[str, Tensor] = {}
    for name, tensor in target.state_dict().items():
        held = tensor.cpu().contiguous()
        if name.removesuffix(".weight") not in wide:
            stored[name] = held if name.endswith(BIAS) else held.bfloat16()
            continue
        for module, part in parts(name.removesuffix(".weight"), held, target.shape):
            if quantised:
                stored |= int4.quantised(part).tensors(module)
            else:
                stored[f"{module}.weight"] = part.bfloat16()
    return stored


@torch.no_grad()
def quantise(target: KimiTarget) -> None:
    """Replace the routed experts' weights by what their INT4 form restores to.

    Groups of 32 inputs never straddle two experts, so the wide matrices may be rounded whole.
    """
    for name in wide_names(target):
        weight = target.get_parameter(f"{name}.weight")
        weight.copy_(int4.quantised(weight).restored())


def attention_config(shape: KimiShape) -> dict[str, object]:
    """Return the keys that the target and the MLA drafter share."""
    return {
        "model_type": "deepseek_v3",
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.query_rank,
        "kv_lora_rank": shape.latent,
        "qk_nope_head_dim": shape.nope_dim,
        "qk_rope_head_dim": shape.head_dim,
        "v_head_dim": shape.value_dim,
        "hidden_act": "silu",
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "rms_norm_eps": shape.rms_eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "bfloat16",
    }


def target_config(shape: KimiShape, *, quantised: bool = True) -> Json:
    """Return the target's config.json."""
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        **attention_config(shape),
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.target_mlp,
        "first_k_dense_replace": shape.dense_layers,
        "moe_layer_freq": 1,
        "moe_intermediate_size": shape.expert_mlp,
        "n_routed_experts": shape.experts,
        "n_shared_experts": shape.shared_experts,
        "num_experts_per_tok": shape.experts_per_token,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": shape.routed_scaling,
        "num_nextn_predict_layers": 0,
        "pretraining_tp": 1,
        "ep_size": 1,
    }
    return {**config, "quantization_config": int4.CONFIG} if quantised else config


def mla_drafter_config(shape: KimiShape) -> Json:
    """Return the MLA drafter's config.json; what it has beside its attention is as in the Llama-style one."""
    llama = export.drafter_config(shape)
    shared = (
        "num_hidden_layers",
        "intermediate_size",
        "draft_vocab_size",
        "eagle_aux_hidden_state_layer_ids",
    )
    return {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        **attention_config(shape),
        **{key: llama[key] for key in (*shared, "eagle_config")},
    }


def write(stored: dict[str, Tensor], path: Path) -> None:
    """Write safetensors, readable by all: the file is created private, and containers run as other users."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(stored, path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_target(target: KimiTarget, folder: Path, *, quantised: bool = True) -> None:
    """Write the target's checkpoint; the tokenizer is written beside it by `vocabulary.save`."""
    write(tensors(target, quantised=quantised), folder / "model.safetensors")
    export.write_target_config(target_config(target.shape, quantised=quantised), folder)
