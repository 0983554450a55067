"""What is there is there; what is not can be mentioned, and says so when it is used."""

import importlib.util

import pytest
import sgl_kernel
import torch
from sgl_kernel.absent import NAMES


def test_nothing_is_both_provided_and_absent() -> None:
    assert not NAMES & set(sgl_kernel.__all__)
    assert all(callable(vars(sgl_kernel)[name]) for name in sgl_kernel.__all__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_absent_operator_imports_and_refuses_to_run(name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"sgl_kernel\.{name} was called"):
        getattr(sgl_kernel, name)(torch.ones(2))


def test_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rmsnorn'"):
        _ = sgl_kernel.rmsnorn
    assert importlib.util.find_spec("sgl_kernel.flash_attn") is None


def test_sglang_does_not_take_this_for_its_amx_kernels() -> None:
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")


def test_triton_kernels_can_be_defined_and_not_launched() -> None:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.autotune(configs=[triton.Config({"BLOCK": 8}, num_warps=4)], key=["n"])
    @triton.jit
    def copy(source: object, n: tl.constexpr) -> None:
        libdevice.exp(source)

    with pytest.raises(NotImplementedError, match="copy was called"):
        copy[(1,)](torch.ones(2), 2)
    assert (triton.cdiv(7, 2), triton.next_power_of_2(5), triton.next_power_of_2(8)) == (4, 8, 8)


def test_torchvision_can_be_mentioned_and_not_used() -> None:
    import torchvision.transforms.v2.functional as functional
    from torchvision.io import decode_jpeg
    from torchvision.transforms import InterpolationMode

    assert {InterpolationMode.BICUBIC: 1}
    for call in (decode_jpeg, functional.resize):
        with pytest.raises(NotImplementedError, match=r"torchvision\..* was called"):
            call(torch.ones(2))
