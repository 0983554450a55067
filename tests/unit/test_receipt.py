from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from draftgate import receipt


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "r.json"
    receipt.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        receipt.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["r.json"]


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert receipt.digest({"a": 1, "b": "ä"}) == receipt.digest({"b": "ä", "a": 1})
    assert receipt.digest(["ab"]) != receipt.digest(["a", "b"])


def test_a_model_is_known_by_sizes_and_its_config(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    assert receipt.model_digest(tmp_path) == receipt.ModelDigest(
        files=(receipt.ModelFile("config.json", 2), receipt.ModelFile("model.safetensors", 5)),
        config_sha256=hashlib.sha256(b"{}").hexdigest(),
    )
    assert receipt.model_digest(tmp_path / "folder") == receipt.ModelDigest((), None)
    assert receipt.model_digest(Path("organization/model-on-a-hub")) is None


def test_gpus_by_model_name(tmp_path: Path) -> None:
    for slot in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / slot).mkdir()
        (tmp_path / slot / "information").write_text("Model: \t NVIDIA H200\nGPU UUID: \t GPU-1234\n")
    assert receipt._accelerators(tmp_path) == ("NVIDIA H200", "NVIDIA H200")
    assert receipt._accelerators(tmp_path / "none") == ()


def test_a_machine_is_models_and_sizes_alone() -> None:
    machine = receipt.machine()
    assert machine.cpus >= 1
    assert socket.gethostname() not in (machine.cpu or "").split()
