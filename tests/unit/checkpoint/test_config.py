"""config.json of targets and drafters: what is read, and what is said when it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftgate.checkpoint.config import (
    AuxIds,
    DrafterConfig,
    TargetShape,
    read_drafter,
    read_target,
)
from draftgate.errors import CheckpointUnreadable

MODELS = Path(__file__).parents[3] / "models"
LLAMA = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}


def _written(folder: Path, content: object) -> Path:
    (folder / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_bundled_models() -> None:
    assert read_target(MODELS / "tiny-target") == TargetShape("LlamaForCausalLM", 8)
    drafter = read_drafter(MODELS / "tiny-drafter")
    assert (drafter.architecture, drafter.num_hidden_layers) == ("LlamaForCausalLMEagle3", 1)
    assert drafter.aux == AuxIds(top_level=(2, 4, 5), nested=(1, 3, 4))


def test_a_multimodal_target_keeps_its_layers_in_text_config(tmp_path: Path) -> None:
    content = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": {"num_hidden_layers": 61}}
    assert read_target(_written(tmp_path, content)) == TargetShape("KimiK25ForConditionalGeneration", 61)


def test_every_key_that_says_which_layers(tmp_path: Path) -> None:
    content = LLAMA | {
        "model_type": "llama",
        "eagle_aux_hidden_state_layer_ids": [2, 3],
        "target_layer_ids": [4],
        "num_aux_hidden_states": 2,
        "fc_norm": True,
        "norm_output": False,
        "eagle_config": {
            "use_aux_hidden_state": False,
            "eagle_aux_hidden_state_layer_ids": [],
            "layer_ids": [5],
        },
    }
    assert read_drafter(_written(tmp_path, content)) == DrafterConfig(
        "LlamaForCausalLMEagle3", "llama", 1, AuxIds((2, 3), (), (5,), (4,), 2, False), ("fc_norm",)
    )


def test_a_speculators_drafter(tmp_path: Path) -> None:
    content = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {"num_hidden_layers": 1},
        "eagle_aux_hidden_state_layer_ids": None,
        "eagle_config": None,
    }
    assert read_drafter(_written(tmp_path, content)) == DrafterConfig("Eagle3Speculator", None, 1, AuxIds())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "is not an object"),
        ({"num_hidden_layers": 1}, "architectures is not a list of names"),
        (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers is not a positive number: True"),
        (LLAMA | {"eagle_config": [1]}, "eagle_config is not an object"),
        (LLAMA | {"eagle_config": {"use_aux_hidden_state": 1}}, "neither true nor false"),
        (
            LLAMA | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, "2"]}},
            "eagle_config.eagle_aux_hidden_state_layer_ids is not a list of whole numbers: [1, '2']",
        ),
    ],
)
def test_a_broken_file_is_named_with_the_reason(tmp_path: Path, content: object, why: str) -> None:
    with pytest.raises(CheckpointUnreadable) as broken:
        read_drafter(_written(tmp_path, content))
    assert broken.value.where == str(tmp_path / "config.json")
    assert why in (broken.value.why or "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable) as missing:
        read_target(tmp_path)
    assert (missing.value.where, missing.value.why) == (
        str(tmp_path / "config.json"),
        "No such file or directory",
    )
