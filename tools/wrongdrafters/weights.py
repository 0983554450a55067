"""A checkpoint's tensors as bytes, read and written without torch or numpy; one file's tensors at a time.

Format: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from draftgate.checkpoint.tensors import Tensor, read_tensors
from draftgate.errors import CheckpointUnreadable

FILE = "model.safetensors"
_CHUNK = 2**20
# Of one value, as a number: the bits that stay random (sign and mantissa), and the exponent of 2^-6.
_RANDOM_VALUE = {
    "BF16": (2, 0x807F, 121 << 7),
    "F16": (2, 0x83FF, 9 << 10),
    "F32": (4, 0x807FFFFF, 121 << 23),
}


@dataclass(frozen=True)
class Weights:
    """Attributes:
    tensors: name → dtype, shape and bytes, in the order of the files.
    """

    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]

    def named(self, name: str) -> str | None:
        """The tensor of that name, with or without a prefix such as ``model.``."""
        return next((full for full in self.tensors if full == name or full.endswith(f".{name}")), None)

    def without(self, name: str) -> Weights:
        return Weights({full: held for full, held in self.tensors.items() if full != name})

    def with_bytes(self, name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Weights:
        return Weights({**self.tensors, name: (dtype, shape, data)})


def read(folder: Path) -> Weights:
    """All tensors of the checkpoint in ``folder``.

    Raises:
        CheckpointUnreadable: as of `draftgate.checkpoint.tensors.read_tensors`.
    """
    known = read_tensors(folder)
    files = dict.fromkeys(tensor.file for tensor in known.values())
    return Weights({name: held for file in files for name, held in _file(folder / file, known)})


def _file(
    file: Path, known: Mapping[str, Tensor]
) -> Iterator[tuple[str, tuple[str, tuple[int, ...], bytes]]]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
        for name, entry in header.items():
            tensor = known.get(name)
            if tensor is not None and tensor.file == file.name:
                stream.seek(8 + length + entry["data_offsets"][0])
                yield name, (tensor.dtype, tensor.shape, stream.read(tensor.size))


def write(weights: Weights, folder: Path) -> None:
    """Write all tensors into one file of ``folder``."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape, data) in weights.tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / FILE).open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in weights.tensors.values():
            stream.write(data)


def column_blocks_moved(data: bytes, rows: int, order: tuple[int, ...]) -> bytes:
    """A matrix whose columns, in as many equal blocks as ``order`` is long, are put in that order."""
    width = len(data) // rows // len(order)
    blocks = [data[start : start + width] for start in range(0, len(data), width)]
    n = len(order)
    return b"".join(blocks[row * n + block] for row in range(rows) for block in order)


def random_values(dtype: str, count: int, seed: int) -> bytes:
    """Values of random sign, uniform between 2^-6 and 2^-5: about as large as a fresh embedding's.

    Raises:
        CheckpointUnreadable: not one of the plain float types.
    """
    if dtype not in _RANDOM_VALUE:
        raise CheckpointUnreadable("random values can be made as BF16, F16 and F32 only", why=f"not {dtype}")
    size, mask, exponent = _RANDOM_VALUE[dtype]
    source, pieces, left = random.Random(seed), [], count * size
    while left:
        length = min(left, _CHUNK)
        every = int.from_bytes(b"\1".ljust(size, b"\0") * (length // size), "little")
        bits = int.from_bytes(source.randbytes(length), "little")
        pieces.append((bits & every * mask | every * exponent).to_bytes(length, "little"))
        left -= length
    return b"".join(pieces)
