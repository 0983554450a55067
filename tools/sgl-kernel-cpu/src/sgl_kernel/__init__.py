"""SGLang's kernel module for machines without a GPU: what its CPU path calls, in PyTorch.

For development, tests and teaching. The operators are this project's own; see the README. `__all__` is what
is provided; the other names that the original exports can be imported too, as SGLang does for other models
and devices, and refuse to be called.
"""

from declared_only import Declared

from sgl_kernel.absent import NAMES
from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from sgl_kernel.kvcacheio import copy_all_layer_kv_cache_cpu
from sgl_kernel.speculative import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    build_tree_kernel_efficient_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
    verify_tree_greedy_cpu,
)

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]
__version__ = "0.4.7"  # whose interface this follows: the sglang-kernel that SGLang 0.5.20 asks for


def __getattr__(name: str) -> Declared:
    if name in NAMES:
        return Declared(f"sgl_kernel.{name}")
    raise AttributeError(f"module 'sgl_kernel' (sgl-kernel-cpu) has no attribute {name!r}")
