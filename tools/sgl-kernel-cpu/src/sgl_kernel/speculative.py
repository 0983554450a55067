"""What SGLang's EAGLE worker asks of its kernels, in PyTorch and plain Python.

Words: B requests; N nodes of a draft tree, the root (the last token the target chose) counted; `req_to_token`
[rows, length] int32, the cache slot of each position of each request, `req_pool_indices[i]` request i's row.
Integer arguments may be int32 or int64. Tensors called "out" are written in place.
"""

import torch

FULL_MASK, QLEN_ONLY = 0, 1


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Enters new slots: positions start_offset[i] to end_offset[i] of request i get the next of the slots.

    req_pool_indices, start_offset, end_offset [B]; req_to_token, out; out_cache_loc [sum of the lengths].
    """
    taken = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Reads slots back: the inverse of `assign_req_to_token_pool_cpu`.

    out_cache_loc, out, at least as long as the sum of the lengths; what lies beyond is left as it is.
    """
    filled = 0
    for row, start, end in _ranges(req_pool_indices, start_offset, end_offset):
        out_cache_loc[filled : filled + end - start] = req_to_token[row, start:end]
        filled += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Reads the topk·num_steps slots that follow each request's seq_lens[i] committed tokens.

    seq_lens [B]; out_cache_loc [B·topk·num_steps], out: branch after branch, step after step.
    """
    ends = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, ends, out_cache_loc, pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """One row of slots for each branch of each request: the committed prefix, then the branch's own slots.

    Returns [B·topk, pool_len] int32; beyond seq_lens[i] + num_steps a row is zero.
    """
    table = req_to_token.new_zeros(len(req_pool_indices) * topk, pool_len)
    requests = zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)
    for i, (row, length) in enumerate(requests):
        for branch in range(topk):
            own = length + branch * num_steps
            table[i * topk + branch, :length] = req_to_token[row, :length]
            table[i * topk + branch, length : length + num_steps] = req_to_token[row, own : own + num_steps]
    return table


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Lays out a draft tree for the target: who sees whom, at which position, and the links for walking it.

    The drafter numbered its candidates step by step: 0 to topk-1 are the children of the root, and candidate
    c belongs to group c // topk; group g > 0 holds the children of candidate parent_list[i, g].

    parent_list [B, topk·(depth-1) + 1]; selected_index [B, N-1], the candidates that were kept, ascending,
    which become nodes 1 to N-1; verified_seq_len [B], committed tokens.
    tree_mask, out, bool, flat: QLEN_ONLY [B·N·N]; FULL_MASK: for each request N rows of verified_seq_len + N,
    whose prefix columns are the caller's and stay as they are. A node sees the root, its ancestors, itself.
    positions, out [B·N]: committed length + depth of the node. retrive_index, out [B, N]: the node's number
    in the whole batch. retrive_next_token, retrive_next_sibling, out [B, N], given full of -1: first child
    and next sibling, children in the order of their numbers. A kept candidate whose parent was not kept (a
    tie in their scores) gets no link, so that no walk reaches it.
    """
    if tree_mask_mode not in (FULL_MASK, QLEN_ONLY):
        raise NotImplementedError(
            f"tree mask mode {tree_mask_mode} (bit packing) is not provided by sgl-kernel-cpu"
        )
    nodes = draft_token_num
    mask_start = 0
    for i, length in enumerate(verified_seq_len.tolist()):
        parents = _parents(parent_list[i].tolist(), selected_index[i].tolist(), topk)
        prefix = length if tree_mask_mode == FULL_MASK else 0
        rows = tree_mask[mask_start : mask_start + nodes * (prefix + nodes)].view(nodes, prefix + nodes)
        mask_start += rows.numel()
        visible, depths = rows[:, prefix:], [0] * nodes
        visible.fill_(False)
        visible[:, 0] = True
        visible.fill_diagonal_(True)
        for node, parent in enumerate(parents):
            if parent is not None:
                visible[node] |= visible[parent]
                depths[node] = depths[parent] + 1
        positions[i * nodes : (i + 1) * nodes] = length + torch.tensor(depths)
        retrive_index[i] = torch.arange(i * nodes, (i + 1) * nodes)
        last_child: dict[int, int] = {}
        for node, parent in enumerate(parents):
            if parent is not None:
                elder = last_child.get(parent)
                link, at = (retrive_next_token, parent) if elder is None else (retrive_next_sibling, elder)
                link[i, at] = node
                last_child[parent] = node


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Walks each tree from its root along the target's own choices, and stops where the draft lacks one.

    candidates [B, N], each node's token; target_predict [B, N], the target's choice after each node; the
    three links as `build_tree_kernel_efficient_cpu` makes them.
    predicts, out [B·N] int32: the target's choice at each node of the accepted path. accept_index, out [B, D]
    int32, given full of -1: the batch numbers of the nodes on that path, root first, at most D - 1 drafts.
    accept_token_num, out [B] int32: accepted drafts, root and bonus token not counted.
    """
    tokens, choices = candidates.tolist(), target_predict.tolist()
    numbers, children, siblings = (
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
    )
    for i in range(len(tokens)):
        path = [0]
        while len(path) < accept_index.shape[1]:
            node = children[i][path[-1]]
            while node != -1 and tokens[i][node] != choices[i][path[-1]]:
                node = siblings[i][node]
            if node == -1:
                break
            path.append(node)
        at = torch.tensor([numbers[i][node] for node in path])
        predicts[at] = torch.tensor([choices[i][node] for node in path], dtype=predicts.dtype)
        accept_index[i, : len(path)] = at.to(accept_index.dtype)
        accept_token_num[i] = len(path) - 1


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor, accept_lens: torch.Tensor, bonus_tokens: torch.Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request.

    accept_tokens [B·accept_stride]; accept_lens [B], tokens accepted, bonus counted; bonus_tokens [B], out.
    """
    first = torch.arange(len(accept_lens)) * accept_stride
    bonus_tokens.copy_(accept_tokens.flatten()[first + accept_lens - 1])


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of the accepted nodes, closed up.

    accept_index [M], batch numbers, -1 for none; accept_out_cache_loc [M], out: its tail is left as it is.
    """
    flat = accept_index.flatten()
    accepted = out_cache_loc[flat[flat >= 0].long()]
    accept_out_cache_loc[: len(accepted)] = accepted


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Moves each request's tokens one to the left and enters its new token last, or at select_index.

    input_ids [T], out; extend_start_loc, extend_seq_lens, topk_index (the new tokens), select_index [B].
    """
    for i, (start, length) in enumerate(
        zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    ):
        if length == 0:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        input_ids[end - 1 if select_index is None else int(select_index[i])] = topk_index[i]


def _ranges(rows: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor) -> list[tuple[int, int, int]]:
    return list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))


def _parents(parent_list: list[int], selected: list[int], topk: int) -> list[int | None]:
    """The parent of each node: none for the root, nor for a node whose parent was not kept."""
    node_of = {candidate: node for node, candidate in enumerate(selected, start=1)}
    groups = [candidate // topk for candidate in selected]
    return [None] + [0 if group == 0 else node_of.get(parent_list[group]) for group in groups]
