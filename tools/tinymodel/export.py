"""The two checkpoints in the layout that engines load: config.json, safetensors in bfloat16."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .drafter import Drafter
from .settings import Shape
from .target import Target
from .vocabulary import BOS_ID, EOS_ID

Json = Mapping[str, object]


def common(shape: Shape) -> dict[str, object]:
    """Return the configuration keys that target and drafter share."""
    return {
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_positions,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "rms_norm_eps": shape.rms_eps,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "bfloat16",
    }


def target_config(shape: Shape) -> Json:
    """Return the target's config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        **common(shape),
        "num_hidden_layers": shape.layers,
        "intermediate_size": shape.target_mlp,
    }


def drafter_config(shape: Shape) -> Json:
    """Return the drafter's config.json, with the aux layers in both spellings.

    vLLM reads the top-level key, inputs of layer L; SGLang reads the nested one, outputs, and adds 1.
    """
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **common(shape),
        "num_hidden_layers": 1,
        "intermediate_size": shape.drafter_mlp,
        "draft_vocab_size": shape.draft_vocab,
        "eagle_aux_hidden_state_layer_ids": list(shape.aux_layers),
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in shape.aux_layers],
        },
    }


def checkpoint(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors as stored: floats in bfloat16, the two vocabulary tables as they are."""
    return {
        name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in module.state_dict().items()
    }


def write_json(value: object, path: Path) -> None:
    """Write indented JSON with a final newline."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_checkpoint(module: nn.Module, folder: Path) -> None:
    """Write model.safetensors, readable by all: it is created private, and containers run as other users."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    save_file(checkpoint(module), path, metadata={"format": "pt"})
    path.chmod(0o644)


def write_target(target: Target, folder: Path) -> None:
    """Write the target's checkpoint; the tokenizer is written beside it by `vocabulary.save`."""
    write_checkpoint(target, folder)
    write_target_config(target_config(target.shape), folder)


def write_target_config(config: Json, folder: Path) -> None:
    """Write config.json and generation_config.json."""
    write_json(config, folder / "config.json")
    generation = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "do_sample": False}
    write_json(generation, folder / "generation_config.json")


def write_drafter(drafter: Drafter, folder: Path, config: Json) -> None:
    """Write the drafter's checkpoint."""
    write_checkpoint(drafter, folder)
    write_json(config, folder / "config.json")


def load(module: nn.Module, folder: Path) -> None:
    """Load a checkpoint into a float32 module: an exact upcast, as engines do it with `--dtype float32`."""
    module.load_state_dict(load_file(folder / "model.safetensors"))
