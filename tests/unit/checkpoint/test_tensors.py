"""safetensors headers: read as they are, refused when the file cannot be what it says."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.checkpoint.tensors import Tensor, read_header, read_tensors
from draftgate.errors import CheckpointUnreadable

MODELS = Path(__file__).parents[3] / "models"


def _file(path: Path, header: object, data: int = 0) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return path


def _entry(begin: int, end: int, shape: list[int], dtype: str = "BF16") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_the_bundled_drafter() -> None:
    tensors = read_tensors(MODELS / "tiny-drafter")
    assert tensors["fc.weight"].shape == (192, 3 * 192)
    assert tensors["d2t"].shape == (1536,)
    assert (
        sum(tensor.size for tensor in tensors.values())
        < (MODELS / "tiny-drafter/model.safetensors").stat().st_size
    )


def test_several_files_by_their_index(tmp_path: Path) -> None:
    _file(tmp_path / "a.safetensors", {"__metadata__": {"format": "pt"}, "x": _entry(0, 12, [2, 3])}, 12)
    _file(tmp_path / "b.safetensors", {"y": _entry(0, 8, [], "I64"), "z": _entry(8, 10, [1], "NEW")}, 10)
    _file(tmp_path / "model.safetensors", {"old": _entry(0, 0, [0])})
    places = {"x": "a.safetensors", "y": "b.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert read_tensors(tmp_path) == {
        "x": Tensor("x", "BF16", (2, 3), "a.safetensors", 12),
        "y": Tensor("y", "I64", (), "b.safetensors", 8),
        "z": Tensor("z", "NEW", (1,), "b.safetensors", 2),
    }


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({"weight_map": {"y": "a.safetensors"}}, "y should be in a.safetensors, and is not"),
        ({"weight_map": {"x": "gone.safetensors"}}, "No such file or directory"),
        ({"weight_map": {"x": "../a.safetensors"}}, "outside the folder"),
        ({"weight_map": []}, "not an object of file names"),
        ([], "not an object of file names"),
    ],
)
def test_an_index_that_is_wrong(tmp_path: Path, index: object, why: str) -> None:
    _file(tmp_path / "a.safetensors", {"x": _entry(0, 2, [1])}, 2)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointUnreadable) as broken:
        read_tensors(tmp_path)
    assert why in (broken.value.why or "")


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="no weights"):
        read_tensors(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the header's length, 0, does not fit the file's, 0"),
        (b"version https://git-lfs.github.com/spec/v1\n", "does not fit the file's, 43"),
        (struct.pack("<Q", 2**62) + b"{}", "does not fit"),
        (struct.pack("<Q", 2) + b"{]", "the header is not JSON"),
        (struct.pack("<Q", 2) + b"[]", "the header is not an object"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointUnreadable) as broken:
        read_header(file)
    assert why in (broken.value.why or "")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (_entry(0, 4, [2]), "the file was cut off"),
        (_entry(0, 2, [2]), "takes 2 bytes, which is not BF16 [2]"),
        (_entry(0, 2, [-1]), "is not a tensor"),
        ({"dtype": "BF16"}, "is not a tensor"),
    ],
)
def test_a_tensor_that_does_not_fit(tmp_path: Path, entry: object, why: str) -> None:
    with pytest.raises(CheckpointUnreadable) as broken:
        read_header(_file(tmp_path / "model.safetensors", {"x": entry}, 2))
    assert why in (broken.value.why or "")


@given(content=st.binary(max_size=200))
def test_any_bytes_give_tensors_or_the_reason(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing else than `CheckpointUnreadable` comes out; by chance no bytes are a header with a tensor."""
    file = tmp_path_factory.getbasetemp() / "any.safetensors"
    file.write_bytes(content)
    with suppress(CheckpointUnreadable):
        assert read_header(file) == ()
