"""Moving keys and values between slots of the cache."""

import ctypes

import torch


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copies slot src_loc[i] to slot tgt_loc[i] in every buffer, as if all were read before any is written.

    data_ptrs [N] uint64, the address of each layer's key or value buffer; strides [N], its bytes per slot;
    tgt_loc, src_loc [M]. The caller owns the buffers and vouches that they hold max(loc) + 1 slots.
    """
    if tgt_loc.numel() == 0:
        return
    slots = int(torch.maximum(tgt_loc.max(), src_loc.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (slots * stride)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(slots, stride)
        buffer[tgt_loc] = buffer[src_loc]
