"""The speculative operators against trees and tables made first, in plain Python."""

import itertools
import random

import pytest
import sgl_kernel
import torch


class DraftTree:
    """A tree as SGLang's drafter grows it: each step, `topk` of the last candidates get `topk` children each.

    Kept are the `nodes` - 1 likeliest candidates. `paths[n]` is the list of nodes from the root to node n.
    """

    def __init__(self, chance: random.Random, topk: int, steps: int, nodes: int) -> None:
        score: dict[int, float] = {}
        parent: dict[int, int | None] = {}
        self.parent_list = [-1]
        chosen: list[int | None] = [None]
        for step in range(steps):
            first = len(score)
            for group, mother in enumerate(chosen):
                for child in range(topk):
                    number = first + group * topk + child
                    parent[number] = mother
                    score[number] = (1.0 if mother is None else score[mother]) * chance.uniform(0.1, 0.9)
            grown = sorted(range(first, len(score)), key=lambda c: -score[c])[:topk]
            if step < steps - 1:
                self.parent_list += grown if step else range(topk)
            chosen = list(grown) if step else list(range(topk))
        self.kept = sorted(sorted(score, key=lambda c: -score[c])[: nodes - 1])
        node_of: dict[int | None, int] = {None: 0} | {c: n for n, c in enumerate(self.kept, start=1)}
        self.paths = [[0]]
        for candidate in self.kept:
            self.paths.append([*self.paths[node_of[parent[candidate]]], node_of[candidate]])

    def children(self, node: int) -> list[int]:
        return [n for n, path in enumerate(self.paths) if len(path) > 1 and path[-2] == node]


SHAPES = [(1, 3, 4), (1, 1, 2), (4, 3, 8), (2, 4, 7), (4, 5, 16), (8, 2, 12)]  # topk, steps, nodes


def grow(seed: int, shape: tuple[int, int, int]) -> list[DraftTree]:
    chance = random.Random(seed)
    return [DraftTree(chance, *shape) for _ in range(3)]


def build(
    trees: list[DraftTree], shape: tuple[int, int, int], lengths: list[int], mode: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    topk, steps, nodes = shape
    prefix = sum(lengths) if mode == 0 else 0
    mask = torch.ones(nodes * prefix + len(trees) * nodes * nodes, dtype=torch.bool)
    positions = torch.full((len(trees) * nodes,), -9, dtype=dtype)
    links = [torch.full((len(trees), nodes), -1, dtype=dtype) for _ in range(3)]
    parents = torch.tensor([tree.parent_list for tree in trees], dtype=dtype)
    kept = torch.tensor([tree.kept for tree in trees], dtype=dtype)
    seq_lens = torch.tensor(lengths, dtype=dtype)
    index, child, sibling = links
    sgl_kernel.build_tree_kernel_efficient_cpu(
        parents, kept, seq_lens, mask, positions, index, child, sibling, topk, steps, nodes, mode
    )
    return mask, positions, index, child, sibling


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", [0, 1], ids=["full mask", "tree only"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_tree_layout(shape: tuple[int, int, int], mode: int, dtype: torch.dtype) -> None:
    nodes, lengths = shape[2], [5, 0, 11]
    for seed in range(8):
        trees = grow(seed, shape)
        mask, positions, index, child, sibling = build(trees, shape, lengths, mode, dtype)
        expected_mask, expected_positions = [], []
        for i, (tree, length) in enumerate(zip(trees, lengths, strict=True)):
            for path in tree.paths:
                expected_mask += [True] * (length if mode == 0 else 0) + [n in path for n in range(nodes)]
                expected_positions.append(length + len(path) - 1)
            assert index[i].tolist() == [i * nodes + n for n in range(nodes)]
            for node in range(nodes):
                walked, at = [], int(child[i, node])
                while at != -1:
                    walked.append(at)
                    at = int(sibling[i, at])
                assert walked == tree.children(node)
        assert mask.tolist() == expected_mask
        assert positions.tolist() == expected_positions


def test_a_kept_candidate_without_its_parent_is_out_of_reach() -> None:
    trees = grow(0, (2, 2, 4))
    for tree in trees:
        tree.kept = [0, 2, 4]  # candidate 4 is a child of candidate 1, which was not kept
    mask, _, _, child, sibling = build(trees, (2, 2, 4), [1, 1, 1], 1, torch.int64)
    assert child[0].tolist() == [1, 2, -1, -1]
    assert sibling[0].tolist() == [-1, -1, -1, -1]
    assert mask.view(3, 4, 4)[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]]


def test_bit_packed_masks_are_refused() -> None:
    shape = SHAPES[0]
    with pytest.raises(NotImplementedError, match="bit packing"):
        build(grow(0, shape), shape, [1, 1, 1], 2, torch.int64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("vocabulary", [2, 8])
def test_greedy_verification_takes_the_longest_path_that_the_target_would_write(
    shape: tuple[int, int, int], vocabulary: int
) -> None:
    topk, steps, nodes = shape
    vocabulary = max(vocabulary, topk)
    seen = set()
    for seed in range(30):
        chance, trees = random.Random(seed), grow(seed, shape)
        _, _, index, child, sibling = build(trees, shape, [3, 4, 5], 1, torch.int64)
        tokens = torch.zeros(3, nodes, dtype=torch.int64)
        for i, tree in enumerate(trees):
            for node in range(nodes):
                for kid, token in zip(
                    tree.children(node), chance.sample(range(vocabulary), topk), strict=False
                ):
                    tokens[i, kid] = token
        choices = torch.tensor([[chance.randrange(vocabulary) for _ in range(nodes)] for _ in range(3)])
        predicts = torch.full((3 * nodes,), -7, dtype=torch.int32)
        accepted = torch.full((3, steps + 1), -1, dtype=torch.int32)
        counts = torch.full((3,), -7, dtype=torch.int32)
        sgl_kernel.verify_tree_greedy_cpu(predicts, accepted, counts, tokens, index, child, sibling, choices)
        expected_predicts = [-7] * (3 * nodes)
        for i, tree in enumerate(trees):
            agreed = [
                path
                for path in tree.paths
                if all(tokens[i, after] == choices[i, before] for before, after in itertools.pairwise(path))
            ]
            longest = max(agreed, key=len)
            seen.add(len(longest))
            assert accepted[i].tolist() == [i * nodes + n for n in longest] + [-1] * (
                steps + 1 - len(longest)
            )
            assert counts[i] == len(longest) - 1
            for node in longest:
                expected_predicts[i * nodes + node] = int(choices[i, node])
        assert predicts.tolist() == expected_predicts
    assert len(seen) > 1  # both rejections and acceptances were met


@pytest.fixture(params=[torch.int32, torch.int64], ids=["int32", "int64"])
def table(request: pytest.FixtureRequest) -> tuple[torch.Tensor, torch.Tensor, torch.dtype]:
    """Slots of 6 rows of 40 positions, rows of three requests, and the dtype for lengths."""
    slots = torch.randperm(240, generator=torch.Generator().manual_seed(0)).int().view(6, 40)
    return slots, torch.tensor([4, 1, 5]), request.param


def test_slots_entered_are_slots_read_back(table: tuple[torch.Tensor, torch.Tensor, torch.dtype]) -> None:
    slots, rows, dtype = table
    before = slots.tolist()
    starts, ends = torch.tensor([2, 7, 0], dtype=dtype), torch.tensor([6, 7, 3], dtype=dtype)
    new = torch.arange(1000, 1007)
    sgl_kernel.assign_req_to_token_pool_cpu(rows, slots, starts, ends, new, 40)
    before[4][2:6], before[5][0:3] = [1000, 1001, 1002, 1003], [1004, 1005, 1006]
    assert slots.tolist() == before
    read = torch.full((9,), -1)
    sgl_kernel.assign_extend_cache_locs_cpu(rows, slots, starts, ends, read, 40)
    assert read.tolist() == [*range(1000, 1007), -1, -1]


@pytest.mark.parametrize(("topk", "steps"), [(1, 3), (4, 2)])
def test_draft_slots(table: tuple[torch.Tensor, torch.Tensor, torch.dtype], topk: int, steps: int) -> None:
    slots, rows, dtype = table
    lengths = torch.tensor([0, 9, 20], dtype=dtype)
    out = torch.full((3 * topk * steps,), -1)
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(rows, slots, lengths, out, 40, topk, steps)
    view = sgl_kernel.build_draft_decode_metadata_cpu(slots, rows, lengths, topk, steps, 40)
    assert (view.shape, view.dtype) == ((3 * topk, 40), torch.int32)
    expected = []
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        line = slots[row].tolist()
        for branch in range(topk):
            own = line[length + branch * steps : length + (branch + 1) * steps]
            expected += own
            assert view[i * topk + branch, : length + steps].tolist() == line[:length] + own
    assert out.tolist() == expected


def test_bonus_tokens_are_the_last_accepted() -> None:
    bonus = torch.zeros(3, dtype=torch.int32)
    accepted = torch.tensor([11, 12, 0, 0, 21, 22, 23, 24, 31, 0, 0, 0], dtype=torch.int32)
    sgl_kernel.fill_bonus_tokens_cpu(accepted, torch.tensor([2, 4, 1], dtype=torch.int32), bonus, 4)
    assert bonus.tolist() == [12, 24, 31]


def test_accepted_slots_are_closed_up() -> None:
    out = torch.zeros(6, dtype=torch.int64)
    index = torch.tensor([[0, 2, -1], [4, -1, -1]], dtype=torch.int32)
    sgl_kernel.fill_accept_out_cache_loc_cpu(index, torch.arange(70, 78), out)
    assert out.tolist() == [70, 72, 74, 0, 0, 0]


@pytest.mark.parametrize("select", [None, [1, 5, 6]])
def test_tokens_move_left(select: list[int] | None) -> None:
    ids = torch.arange(10, 17)
    sgl_kernel.rotate_input_ids_cpu(
        ids,
        torch.tensor([0, 3, 4], dtype=torch.int32),
        torch.tensor([3, 0, 3]),
        torch.tensor([91, 92, 93]),
        None if select is None else torch.tensor(select),
    )
    assert ids.tolist() == ([11, 12, 91, 13, 15, 16, 93] if select is None else [11, 91, 12, 13, 15, 16, 93])


def test_slots_move_in_every_buffer_at_once() -> None:
    buffers = [
        torch.arange(12, dtype=torch.float32).view(6, 2),
        torch.arange(18, dtype=torch.float64).view(6, 3),
    ]
    expected = [buffer.clone() for buffer in buffers]
    for buffer in expected:
        buffer[[0, 1, 4]] = buffer[[1, 2, 5]]
    pointers = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64)
    strides = torch.tensor([buffer[0].nbytes for buffer in buffers])
    sgl_kernel.copy_all_layer_kv_cache_cpu(
        pointers, strides, torch.tensor([0, 1, 4]), torch.tensor([1, 2, 5])
    )
    for buffer, wanted in zip(buffers, expected, strict=True):
        assert torch.equal(buffer, wanted)
