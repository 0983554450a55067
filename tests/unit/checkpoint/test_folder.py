"""From a model's name to its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftgate.checkpoint.folder import find_folder
from draftgate.errors import CheckpointUnreadable

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _snapshot(cache: Path) -> Path:
    repository = cache / "models--AQ-MedAI--Kimi-K25-eagle3"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_huggingface_hub_looks(
    tmp_path: Path, variable: str, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = _snapshot(tmp_path / below)
    environment = {variable: str(tmp_path)}
    monkeypatch.setenv("HOME", str(tmp_path) if variable == "HOME" else "/nowhere")
    for revision in (None, "main", COMMIT):
        assert find_folder("AQ-MedAI/Kimi-K25-eagle3", revision, environment) == snapshot


def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "drafter").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("models/drafter", "./models/drafter", str(tmp_path / "models/drafter")):
        assert find_folder(name, None, {}) == tmp_path / "models" / "drafter"
    for name in ("./gone", "/gone/away", "drafter", "./" + "x" * 300, "x" * 300):
        with pytest.raises(CheckpointUnreadable, match="no such model folder"):
            find_folder(name, None, {})


def test_what_is_not_there_is_to_be_downloaded(tmp_path: Path) -> None:
    _snapshot(tmp_path)
    with pytest.raises(CheckpointUnreadable) as missing:
        find_folder("AQ-MedAI/Kimi-K25-eagle3", "v2", {"HF_HUB_CACHE": str(tmp_path)})
    assert missing.value.lines() == [
        "AQ-MedAI/Kimi-K25-eagle3 is not in the local Hugging Face cache at revision v2",
        f"  where: {tmp_path}/models--AQ-MedAI--Kimi-K25-eagle3",
        "  why:   its config.json must be read, and rewritten for the engine, before it is served",
        "  next:  hf download AQ-MedAI/Kimi-K25-eagle3 --revision v2",
    ]
