"""Names, types and shapes of a checkpoint's tensors, from the safetensors headers alone.

A safetensors file begins with the header's length (8 bytes, little-endian), then the header as JSON.
Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import CheckpointUnreadable

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# The format's own limit; more is a file of another kind, read as one.
_LARGEST_HEADER_BYTES = 100_000_000
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint.

    Attributes:
        dtype: the format's own name, such as ``BF16``.
        file: the file's name within the folder.
        size: bytes that it takes in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    size: int


def read_tensors(folder: Path) -> Mapping[str, Tensor]:
    """All tensors of the checkpoint in ``folder``, by name.

    Read are the files that the index names, else ``model.safetensors``, else every ``*.safetensors``.

    Raises:
        CheckpointUnreadable: there is none, one is missing or broken, or index and headers disagree.
    """
    index = folder / INDEX
    placed = _weight_map(index) if index.is_file() else None
    if placed is not None:
        files = [folder / name for name in sorted(set(placed.values()))]
    elif (folder / SINGLE).is_file():
        files = [folder / SINGLE]
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointUnreadable(
            "a model has no weights in safetensors format", where=str(folder), next_step="convert it first"
        )
    tensors = {tensor.name: tensor for file in files for tensor in read_header(file)}
    for name, place in (placed or {}).items():
        if name not in tensors or tensors[name].file != place:
            raise _broken(index, f"{name} should be in {place}, and is not")
    return tensors


def read_header(file: Path) -> tuple[Tensor, ...]:
    """The tensors of one file, in the header's order.

    Raises:
        CheckpointUnreadable: the file is missing, cut off or of another format.
    """
    try:
        with file.open("rb") as stream:
            total = stream.seek(0, 2)
            stream.seek(0)
            length = struct.unpack("<Q", stream.read(8).ljust(8, b"\0"))[0]
            if not 2 <= length <= min(_LARGEST_HEADER_BYTES, total - 8):
                raise _broken(file, f"the header's length, {length}, does not fit the file's, {total}")
            text = stream.read(length)
    except OSError as error:
        raise _broken(file, error.strerror or str(error)) from error
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(file, f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _broken(file, "the header is not an object")
    room = total - 8 - length
    return tuple(_tensor(file, name, entry, room) for name, entry in header.items() if name != "__metadata__")


def _tensor(file: Path, name: str, entry: Any, room: int) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if all(
            isinstance(side, int) and side >= 0 for side in shape
        ):
            pass
        case _:
            raise _broken(file, f"the header's entry of {name} is not a tensor")
    if not 0 <= begin <= end <= room:
        raise _broken(file, f"{name} ends at byte {end} of {room}: the file was cut off")
    elements = 1
    for side in shape:
        elements *= side
    bits = _BITS.get(dtype)
    if bits is not None and (end - begin) * 8 != elements * bits:
        raise _broken(file, f"{name} takes {end - begin} bytes, which is not {dtype} {shape}")
    return Tensor(name, dtype, tuple(shape), file.name, end - begin)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(index, str(error)) from error
    placed = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(placed, dict) or not all(isinstance(name, str) for name in placed.values()):
        raise _broken(index, "weight_map is not an object of file names")
    if any("/" in name or name in ("", ".", "..") for name in placed.values()):
        raise _broken(index, "weight_map names a file outside the folder")
    return placed


def _broken(file: Path, why: str) -> CheckpointUnreadable:
    return CheckpointUnreadable(
        "a checkpoint's file is missing or broken",
        where=str(file),
        why=why,
        next_step="copy or download it again",
    )
