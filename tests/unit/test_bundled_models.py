"""The bundled tiny target and drafter: what lies in models/ fits together and holds what its card says."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[2] / "models"
TARGET, DRAFTER = MODELS / "tiny-target", MODELS / "tiny-drafter"


def read_json(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def header(folder: Path) -> dict[str, Any]:
    with (folder / "model.safetensors").open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        loaded: dict[str, Any] = json.loads(file.read(length))
    loaded.pop("__metadata__", None)
    return loaded


def tensor_bytes(folder: Path, name: str) -> bytes:
    content = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    begin, end = header(folder)[name]["data_offsets"]
    return content[8 + length + begin : 8 + length + end]


def shapes(folder: Path) -> dict[str, tuple[str, list[int]]]:
    return {name: (entry["dtype"], entry["shape"]) for name, entry in header(folder).items()}


def drafted_ids() -> list[int]:
    stored = tensor_bytes(DRAFTER, "d2t")
    offsets = struct.unpack(f"<{len(stored) // 8}q", stored)
    return [number + offset for number, offset in enumerate(offsets)]


def prompts() -> list[dict[str, str]]:
    return [json.loads(line) for line in (MODELS / "eval-prompts.jsonl").read_text("utf-8").splitlines()]


def test_models_folder_is_small() -> None:
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) <= 16_000_000


def test_target_has_the_layers_and_shapes_of_its_config() -> None:
    config, found = read_json(TARGET / "config.json"), shapes(TARGET)
    hidden, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    width = config["num_attention_heads"] * config["head_dim"]
    expected: dict[str, list[int]] = {
        "model.embed_tokens.weight": [vocab, hidden],
        "model.norm.weight": [hidden],
        "lm_head.weight": [vocab, hidden],
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        expected |= {
            f"{prefix}input_layernorm.weight": [hidden],
            f"{prefix}post_attention_layernorm.weight": [hidden],
            f"{prefix}self_attn.q_proj.weight": [width, hidden],
            f"{prefix}self_attn.k_proj.weight": [width, hidden],
            f"{prefix}self_attn.v_proj.weight": [width, hidden],
            f"{prefix}self_attn.o_proj.weight": [hidden, width],
            f"{prefix}mlp.gate_proj.weight": [inner, hidden],
            f"{prefix}mlp.up_proj.weight": [inner, hidden],
            f"{prefix}mlp.down_proj.weight": [hidden, inner],
        }
    assert found == {name: ("BF16", shape) for name, shape in expected.items()}
    assert config["num_hidden_layers"] >= 8


def test_drafter_has_the_tensors_that_engines_read() -> None:
    config, found = read_json(DRAFTER / "config.json"), shapes(DRAFTER)
    hidden, inner, draft_vocab = (
        config["hidden_size"],
        config["intermediate_size"],
        config["draft_vocab_size"],
    )
    width = config["num_attention_heads"] * config["head_dim"]
    floats = {
        "fc.weight": [hidden, 3 * read_json(TARGET / "config.json")["hidden_size"]],
        "midlayer.hidden_norm.weight": [hidden],
        "midlayer.input_layernorm.weight": [hidden],
        "midlayer.post_attention_layernorm.weight": [hidden],
        "midlayer.self_attn.q_proj.weight": [width, 2 * hidden],
        "midlayer.self_attn.k_proj.weight": [width, 2 * hidden],
        "midlayer.self_attn.v_proj.weight": [width, 2 * hidden],
        "midlayer.self_attn.o_proj.weight": [hidden, width],
        "midlayer.mlp.gate_proj.weight": [inner, hidden],
        "midlayer.mlp.up_proj.weight": [inner, hidden],
        "midlayer.mlp.down_proj.weight": [hidden, inner],
        "norm.weight": [hidden],
        "lm_head.weight": [draft_vocab, hidden],
    }
    expected = {name: ("BF16", shape) for name, shape in floats.items()}
    expected |= {"d2t": ("I64", [draft_vocab]), "t2d": ("BOOL", [config["vocab_size"]])}
    assert found == expected


def test_drafter_fits_the_target() -> None:
    target, drafter = read_json(TARGET / "config.json"), read_json(DRAFTER / "config.json")
    for key in ("vocab_size", "hidden_size", "head_dim", "rope_theta", "rms_norm_eps", "rope_scaling"):
        assert drafter[key] == target[key], key
    assert drafter["max_position_embeddings"] >= target["max_position_embeddings"]
    assert drafter["draft_vocab_size"] < target["vocab_size"]


def test_draft_vocabulary_is_stored_as_offsets() -> None:
    ids, size = drafted_ids(), read_json(DRAFTER / "config.json")["vocab_size"]
    assert all(low < high for low, high in pairwise(ids))
    assert ids[0] >= 0
    assert ids[-1] < size
    marked = tensor_bytes(DRAFTER, "t2d")
    assert [number for number, flag in enumerate(marked) if flag] == ids


def test_both_spellings_of_the_aux_layers_mean_the_same() -> None:
    config, layers = (
        read_json(DRAFTER / "config.json"),
        read_json(TARGET / "config.json")["num_hidden_layers"],
    )
    inputs = config["eagle_aux_hidden_state_layer_ids"]
    nested = config["eagle_config"]
    assert nested["use_aux_hidden_state"] is True
    assert [layer + 1 for layer in nested["eagle_aux_hidden_state_layer_ids"]] == inputs
    # What an engine takes that reads neither key.
    assert inputs == [2, layers // 2, layers - 3]


def test_tokenizer_has_the_vocabulary_and_a_plain_chat_template() -> None:
    tokenizer, config = read_json(TARGET / "tokenizer.json"), read_json(TARGET / "tokenizer_config.json")
    assert len(tokenizer["model"]["vocab"]) == read_json(TARGET / "config.json")["vocab_size"]
    assert [token["content"] for token in tokenizer["added_tokens"]] == [
        config["bos_token"],
        config["eos_token"],
    ]
    assert config["chat_template"].startswith("{{ bos_token }}")


def test_evaluation_prompts_come_from_files_that_were_not_trained_on() -> None:
    trained = {
        line.split("  ", 1)[1] for line in (MODELS / "training-files.txt").read_text("utf-8").splitlines()
    }
    found = prompts()
    assert len({prompt["id"] for prompt in found}) == 50
    assert len({prompt["prompt"] for prompt in found}) == 50
    assert not {prompt["file"] for prompt in found} & trained


def test_the_report_holds_the_figures_of_the_card() -> None:
    report = read_json(MODELS / "training-report.json")["evaluation"]
    assert report["acceptance_rate"] >= 0.6
    assert report["distinct_bigram_ratio"] >= 0.3
