"""INT4 against compressed-tensors' own packing and rounding."""

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

from tools.kimimodel import int4


def test_words_are_those_of_compressed_tensors() -> None:
    integers = torch.randint(-8, 8, (5, 64), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    integers[0, :8] = torch.tensor([-8, 7, -1, 0, 1, 2, 3, 7], dtype=torch.int8)
    assert torch.equal(int4.packed(integers), pack_to_int32(integers, int4.BITS))


def test_the_first_of_eight_lies_in_the_lowest_bits() -> None:
    integers = torch.tensor([[-7, -8, -8, -8, -8, -8, -8, -8]], dtype=torch.int8)
    assert int4.packed(integers).tolist() == [[1]]


def test_a_weight_is_restored_to_half_a_step() -> None:
    weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    held = int4.quantised(weight)
    steps = held.scales.float().repeat_interleave(int4.GROUP, dim=1)
    # Half a step, or the whole one beyond 7 that symmetric rounding cuts off, and bfloat16's own rounding.
    off = (held.restored().float() - weight).abs() / steps
    assert off.max() <= 0.56
    stored = held.tensors("x")
    integers = unpack_from_int32(stored["x.weight_packed"], int4.BITS, weight.shape)
    again = integers.unflatten(1, (-1, int4.GROUP)).float() * stored["x.weight_scale"][..., None].float()
    assert torch.equal(again.flatten(1).bfloat16(), held.restored())
    assert stored["x.weight_shape"].tolist() == [4, 64]


def test_zeros_stay_zeros() -> None:
    assert not int4.quantised(torch.zeros(2, 32)).restored().any()
