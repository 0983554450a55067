"""The two attention operators that SGLang's `intel_amx` backend calls, in PyTorch.

Both read keys and values from the paged cache through `req_to_token`: row `req_pool_indices[i]` of that table
holds, for each position of request i, the slot of its key and value. Scores and softmax are computed in
float32 whatever the dtype of the inputs. Grouped-query attention is provided (H query heads share Hkv key
heads, H a multiple of Hkv); windows, logit caps, sinks, cross-attention and scaled caches are refused.
"""

import torch


def decode_attention_cpu(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor,
    attn_logits: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """One new token for each of B requests attends to the whole of its request.

    query [B, H, D]; k_cache [slots, Hkv, D], v_cache [slots, Hkv, Dv], written in place at `loc` [B] with
    `key` [B, Hkv, D] and `value` [B, Hkv, Dv] where these are given; output [B, H, Dv], written in place;
    req_to_token [rows, length] int32; req_pool_indices [B]; seq_lens [B], the new token counted.
    `attn_logits` is scratch space of the original kernel and is not touched.
    """
    _refuse(k_scale, v_scale, logit_cap, is_cross_attn, sliding_window_size, encoder_lens, sinks)
    if key is not None and value is not None:
        k_cache[loc] = key.reshape(-1, *k_cache.shape[1:]).to(k_cache.dtype)
        v_cache[loc] = value.reshape(-1, *v_cache.shape[1:]).to(v_cache.dtype)
    lengths = zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    for i, (row, length) in enumerate(lengths):
        slots = req_to_token[row, :length]
        output[i] = _attend(query[i : i + 1], k_cache[slots], v_cache[slots], sm_scale, None)[0]


def extend_attention_cpu(
    q_extend: torch.Tensor,
    k_extend: torch.Tensor | None,
    v_extend: torch.Tensor | None,
    o_extend: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """The last `extend_seq_lens[i]` tokens of each request attend to its prefix and to each other.

    q_extend [T, H, D], T the sum of extend_seq_lens; k_extend [T, Hkv, D] and v_extend [T, Hkv, Dv], or None
    to take the new keys and values from the cache, where the caller then stored them; o_extend [T, H, Dv],
    written in place; seq_lens [B], new tokens counted; request i's new tokens begin at extend_start_loc[i].

    Every new token sees the prefix. Among the new tokens visibility is causal (`is_causal`), full, or
    `tree_mask`: bool, request after request a square of extend_seq_lens[i]², row = query, column = key, in
    which a node of a draft tree sees its ancestors and itself.
    """
    _refuse(k_scale, v_scale, logit_cap, is_cross_attn, sliding_window_size, encoder_lens, sinks)
    mask_start = 0
    sizes = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        strict=True,
    )
    for row, length, new, start in sizes:
        prefix = length - new
        slots = req_to_token[row, :length]
        keys, values = k_cache[slots], v_cache[slots]
        if k_extend is not None and v_extend is not None:
            chunk = slice(start, start + new)
            keys = torch.cat([keys[:prefix], k_extend[chunk].reshape(new, *keys.shape[1:]).to(keys.dtype)])
            values = torch.cat(
                [values[:prefix], v_extend[chunk].reshape(new, *values.shape[1:]).to(values.dtype)]
            )
        visible = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            visible[:, prefix:] = tree_mask[mask_start : mask_start + new * new].view(new, new)
            mask_start += new * new
        elif is_causal:
            visible = visible.tril(prefix)
        o_extend[start : start + new] = _attend(
            q_extend[start : start + new], keys, values, sm_scale, visible
        )


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, visible: torch.Tensor | None
) -> torch.Tensor:
    """softmax(q·kᵀ·scale)·v, [T, H, Dv].

    query [T, H, D]; keys [S, Hkv, D]; values [S, Hkv, Dv]; visible [T, S], or None for all.
    """
    tokens, heads, _ = query.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    # [Hkv, group, T, ·] against [Hkv, 1, S, ·]: each key head serves `group` neighbouring query heads.
    q = query.float().view(tokens, kv_heads, group, -1).permute(1, 2, 0, 3)
    k = keys.float().permute(1, 0, 2).unsqueeze(1)
    v = values.float().permute(1, 0, 2).unsqueeze(1)
    scores = (q @ k.transpose(-1, -2)) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    mixed = scores.softmax(-1) @ v
    return mixed.permute(2, 0, 1, 3).reshape(tokens, heads, -1)


def _refuse(
    k_scale: float,
    v_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    asked = {
        "a scaled KV cache (k_scale, v_scale)": k_scale != 1.0 or v_scale != 1.0,
        "a logit cap": logit_cap > 0,
        "cross-attention": is_cross_attn or encoder_lens is not None,
        "a sliding window": sliding_window_size > 0,
        "attention sinks": sinks is not None,
    }
    for feature, wanted in asked.items():
        if wanted:
            raise NotImplementedError(
                f"this model needs {feature}, which sgl-kernel-cpu does not provide: it covers plain "
                "(grouped-query) attention. Serve a Llama-like model, or build SGLang's own CPU kernels."
            )


# SGLang looks these two up as torch.ops.sgl_kernel.*; everything else it imports by name. No operator named
# convert_weight_packed may ever be defined here: by its presence SGLang decides that AMX kernels for norms,
# activations and matrix products exist, instead of using its own PyTorch code.
_library = torch.library.Library("sgl_kernel", "DEF")
_library.define(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_cache, Tensor(b!) v_cache, float k_scale, float "
    "v_scale, Tensor(c!) output, Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, Tensor "
    "req_to_token, Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool "
    "is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_library.define(
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend, "
    "Tensor k_cache, Tensor v_cache, float k_scale, float v_scale, Tensor req_to_token, Tensor "
    "req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, int "
    "max_len_extend, float sm_scale, float logit_cap, bool is_cross_attn, int sliding_window_size, "
    "Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
_library.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
_library.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
