"""The drafter's overlay: what the engine is given instead of the drafter's own folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftgate.checkpoint.config import AuxIds, TargetShape, read_drafter
from draftgate.engine.aux_layers import captured
from draftgate.errors import AuxLayersRefused, FolderUnusable
from draftgate.launch.overlay import Plan, overlay, plan
from draftgate.settings import settings

KIMI = TargetShape("KimiK25ForConditionalGeneration", 61)
NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    settings.cache_clear()
    yield tmp_path / "data"
    settings.cache_clear()


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    """As AQ-MedAI's: nested ids only."""
    folder = tmp_path / "aq"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "note": "übrig",
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "extra").mkdir()
    return folder


def _tree(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (path.read_text() if path.is_file() else "", path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def _made(folder: Path, pin: str, target: TargetShape, layers: tuple[int, ...] | None, **more: Any) -> Path:
    """What the engine is given."""
    found = overlay(folder, pin, target, layers, **more)
    return folder if found is None else found.make()


def test_weights_are_linked_and_the_config_says_both(drafter: Path, data: Path) -> None:
    before = _tree(drafter)
    made = _made(drafter, "sglang-cuda12", KIMI, (2, 30, 58), name="AQ-MedAI/Kimi-K25-eagle3")
    assert made.parent == data / "overlays"
    assert made.name.startswith("AQ-MedAI--Kimi-K25-eagle3-")
    assert {entry.name: os.readlink(entry) for entry in made.iterdir() if entry.is_symlink()} == {
        "model.safetensors": str(drafter / "model.safetensors"),
        "extra": str(drafter / "extra"),
    }
    assert json.loads((made / "config.json").read_text()) == {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "note": "übrig",
        "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [1, 29, 57]},
        "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
    }
    assert captured("sglang-cuda12", KIMI, read_drafter(made).aux) == (2, 30, 58)
    assert _tree(drafter) == before


def test_what_is_only_shown_is_not_written(drafter: Path, data: Path) -> None:
    shown = overlay(drafter, "vllm-cuda12", KIMI, (3, 31, 59))
    assert not data.exists()
    assert shown is not None
    assert shown.path == _made(drafter, "vllm-cuda12", KIMI, (3, 31, 59))


def test_made_once_and_mended_when_it_is_not_whole(drafter: Path, data: Path) -> None:
    first = _made(drafter, "vllm-cuda12", KIMI, (3, 31, 59))
    made_at = first.stat().st_ino
    assert _made(drafter, "vllm-cuda12", KIMI, (3, 31, 59)) == first
    assert first.stat().st_ino == made_at
    (first / "model.safetensors").unlink()
    assert _made(drafter, "vllm-cuda12", KIMI, (3, 31, 59)) == first
    assert (first / "model.safetensors").read_bytes() == b"weights"
    assert [entry.name for entry in (data / "overlays").iterdir()] == [first.name]


def test_another_drafter_or_other_layers_are_another_folder(drafter: Path, tmp_path: Path) -> None:
    paths = {_made(drafter, "vllm-cuda12", KIMI, layers) for layers in ((3, 31, 59), (4, 31, 59))}
    (drafter / "second.safetensors").write_bytes(b"more")
    paths.add(_made(drafter, "vllm-cuda12", KIMI, (3, 31, 59)))
    twin = tmp_path / "twin" / "aq"
    drafter.rename(tmp_path / "elsewhere")
    twin.parent.mkdir()
    (tmp_path / "elsewhere").rename(twin)
    paths.add(_made(twin, "vllm-cuda12", KIMI, (3, 31, 59)))
    assert len(paths) == 4


def test_two_starts_at_once_share_one(drafter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one finishes between looking and moving."""
    other: list[Path] = []
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        other.append(_made(drafter, "vllm-cuda12", KIMI, (3, 31, 59)))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert [_made(drafter, "vllm-cuda12", KIMI, (3, 31, 59))] == other
    assert list(other[0].parent.iterdir()) == other


def test_no_overlay_where_the_own_config_will_do(drafter: Path, data: Path) -> None:
    assert _made(drafter, "sglang-cuda13", KIMI, (2, 30, 58)) == drafter
    assert _made(drafter, "vllm-cuda12", KIMI, None) == drafter
    assert not data.exists()


def test_ids_that_the_pin_passes_over_are_written_even_where_its_defaults_agree(drafter: Path) -> None:
    """vLLM's other model runner would read them, and take them as they are."""
    config = read_drafter(drafter)
    assert plan(config, "vllm-cuda13", KIMI, (2, 30, 58)) == Plan(
        (2, 30, 58), None, AuxIds(top_level=(2, 30, 58), nested=(1, 29, 57))
    )
    assert plan(config, "vllm-cuda13", KIMI, None) == Plan((2, 30, 58), None, None)
    assert plan(config, "sglang-cuda13", KIMI, (58, 30, 2)) == Plan((2, 30, 58), NESTED, None)


def test_refused_before_anything_is_written(drafter: Path, data: Path) -> None:
    with pytest.raises(AuxLayersRefused, match="with CUDA graphs"):
        _made(drafter, "sglang-cuda12", KIMI, (3, 31, 59))
    with pytest.raises(AuxLayersRefused, match="with CUDA graphs"):
        _made(drafter, "sglang-cuda12", KIMI, None)
    assert not data.exists()
    assert _made(drafter, "sglang-cuda12", KIMI, (3, 31, 59), graphs=False) == drafter


def test_as_many_layers_as_the_drafter_was_trained_on(drafter: Path) -> None:
    """This pin would make its fc for two."""
    with pytest.raises(AuxLayersRefused, match="was trained on 3 layers, not 2"):
        overlay(drafter, "vllm-cuda13", KIMI, (2, 30))


def test_a_target_that_was_not_read_is_served_as_it_is_unless_layers_are_asked(drafter: Path) -> None:
    qwen = TargetShape("Qwen3ForCausalLM", 36)
    assert _made(drafter, "vllm-cuda12", qwen, None) == drafter
    with pytest.raises(AuxLayersRefused, match="of a Qwen3ForCausalLM"):
        _made(drafter, "vllm-cuda12", qwen, (2, 18, 33))


def test_a_folder_that_cannot_be_written(drafter: Path, data: Path) -> None:
    data.write_text("a file")
    with pytest.raises(FolderUnusable) as refused:
        _made(drafter, "vllm-cuda12", KIMI, (3, 31, 59))
    assert refused.value.where == f"DRAFTGATE_DATA_DIR={data}"
