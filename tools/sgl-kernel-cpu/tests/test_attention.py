"""The attention operators against one query at a time, in float64, written from the formula."""

import math

import pytest
import sgl_kernel  # noqa: F401  # registers torch.ops.sgl_kernel
import torch

SLOTS, ROWS, LENGTH = 96, 5, 24
SCALE = 0.3


def attend_one(query: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
    """One head, one query [D] over the keys [D] and values [Dv] that it may see."""
    scores = [math.exp(SCALE * float(query.double() @ key.double())) for key in keys]
    mixed = sum(score * value.double() for score, value in zip(scores, values, strict=True))
    return torch.as_tensor(mixed / sum(scores))


class Case:
    """A cache, three requests whose slots lie scattered in it, and `new` tokens at the end of each."""

    def __init__(self, seed: int, heads: int, kv_heads: int, new: list[int], v_dim: int = 8) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        self.heads, self.group = heads, heads // kv_heads
        self.k_cache, self.v_cache = normal(SLOTS, kv_heads, 8), normal(SLOTS, kv_heads, v_dim)
        self.table = torch.zeros(ROWS, LENGTH, dtype=torch.int32)
        self.rows = torch.tensor([3, 0, 4])
        self.lengths = torch.tensor([7, 20, 13])
        free = torch.randperm(SLOTS, generator=random).int()
        for row, length in zip(self.rows.tolist(), self.lengths.tolist(), strict=True):
            self.table[row, :length], free = free[:length], free[length:]
        self.new = torch.tensor(new, dtype=torch.int32)
        self.starts = torch.cumsum(self.new, 0).int() - self.new
        tokens = int(self.new.sum())
        self.query, self.output = normal(tokens, heads, 8), torch.full((tokens, heads, v_dim), math.nan)
        self.key, self.value = normal(tokens, kv_heads, 8), normal(tokens, kv_heads, v_dim)

    def store_new(self) -> None:
        """The new tokens' keys and values go where the table says."""
        for request, row in enumerate(self.rows.tolist()):
            for t in range(int(self.new[request])):
                slot = self.table[row, int(self.lengths[request] - self.new[request]) + t]
                self.k_cache[slot] = self.key[int(self.starts[request]) + t]
                self.v_cache[slot] = self.value[int(self.starts[request]) + t]

    def expected(self, sees: object) -> torch.Tensor:
        """`sees(request, t, u)`: whether new token t sees new token u. The cache holds everything."""
        result = torch.empty(self.output.shape, dtype=torch.float64)
        for request, row in enumerate(self.rows.tolist()):
            new = int(self.new[request])
            prefix = int(self.lengths[request]) - new
            for t in range(new):
                positions = [*range(prefix), *(prefix + u for u in range(new) if sees(request, t, u))]  # type: ignore[operator]
                slots = [int(self.table[row, position]) for position in positions]
                for head in range(self.heads):
                    shared = head // self.group
                    at = int(self.starts[request]) + t
                    keys, values = (
                        [cache[s, shared] for s in slots] for cache in (self.k_cache, self.v_cache)
                    )
                    result[at, head] = attend_one(self.query[at, head], keys, values)
        return result

    def extend(self, given: bool, tree_mask: torch.Tensor | None, causal: bool = True) -> None:
        torch.ops.sgl_kernel.extend_attention_cpu(
            self.query,
            self.key if given else None,
            self.value if given else None,
            self.output,
            self.k_cache,
            self.v_cache,
            1.0,
            1.0,
            self.table,
            self.rows,
            self.lengths,
            self.new,
            self.starts,
            int(self.new.max()),
            SCALE,
            0.0,
            False,
            0,
            None,
            None,
            tree_mask,
            causal,
        )

    def decode(self, key: torch.Tensor | None, value: torch.Tensor | None, **other: object) -> None:
        arguments = {
            "query": self.query,
            "k_cache": self.k_cache,
            "v_cache": self.v_cache,
            "k_scale": 1.0,
            "v_scale": 1.0,
            "output": self.output,
            "key": key,
            "value": value,
            "loc": self.table[self.rows, self.lengths - 1].long(),
            "attn_logits": torch.empty(0),
            "req_to_token": self.table,
            "req_pool_indices": self.rows,
            "seq_lens": self.lengths,
            "sm_scale": SCALE,
            "logit_cap": 0.0,
            "is_cross_attn": False,
            "sliding_window_size": 0,
            "encoder_lens": None,
            "sinks": None,
        }
        torch.ops.sgl_kernel.decode_attention_cpu(**(arguments | other))


def close(case: Case, expected: torch.Tensor) -> None:
    torch.testing.assert_close(case.output.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads", "v_dim"), [(3, 3, 8), (4, 2, 8), (6, 1, 5)])
@pytest.mark.parametrize("given", [True, False], ids=["keys given", "keys in the cache"])
def test_extend_is_causal_after_the_prefix(heads: int, kv_heads: int, v_dim: int, given: bool) -> None:
    case = Case(1, heads, kv_heads, new=[7, 1, 4], v_dim=v_dim)  # a whole prompt, one token, a chunk
    case.store_new()
    case.extend(given, None)
    close(case, case.expected(lambda _, t, u: u <= t))


def test_given_keys_win_over_what_the_cache_holds() -> None:
    case = Case(2, 3, 3, new=[2, 3, 4])
    case.extend(True, None)
    case.store_new()
    close(case, case.expected(lambda _, t, u: u <= t))


def test_extend_without_causality_sees_everything() -> None:
    case = Case(3, 2, 1, new=[2, 3, 4])
    case.store_new()
    case.extend(False, None, causal=False)
    close(case, case.expected(lambda *_: True))


def test_tree_mask_rules_among_the_new_tokens_only() -> None:
    case = Case(4, 4, 2, new=[4, 4, 4])
    case.store_new()
    squares = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(4)) < 0.5
    case.extend(False, squares.flatten())
    close(case, case.expected(lambda request, t, u: bool(squares[request, t, u])))


@pytest.mark.parametrize(("heads", "kv_heads", "v_dim"), [(3, 3, 8), (4, 2, 8), (6, 1, 5)])
def test_decode_stores_the_new_token_and_sees_the_whole_request(
    heads: int, kv_heads: int, v_dim: int
) -> None:
    case, twin = (Case(5, heads, kv_heads, new=[1, 1, 1], v_dim=v_dim) for _ in range(2))
    case.decode(case.key, case.value)
    twin.store_new()
    assert torch.equal(case.k_cache, twin.k_cache)
    assert torch.equal(case.v_cache, twin.v_cache)
    close(case, twin.expected(lambda _, t, u: u <= t))


def test_decode_without_keys_leaves_the_cache_alone() -> None:
    case, twin = (Case(6, 3, 3, new=[1, 1, 1]) for _ in range(2))
    case.decode(None, None)
    assert torch.equal(case.k_cache, twin.k_cache)
    close(case, twin.expected(lambda _, t, u: u <= t))


def test_bfloat16_is_mixed_in_float32() -> None:
    case = Case(7, 4, 2, new=[1, 1, 1])
    for name in ("k_cache", "v_cache", "query", "key", "value", "output"):
        setattr(case, name, getattr(case, name).bfloat16())
    case.store_new()
    case.decode(None, None)
    torch.testing.assert_close(case.output, case.expected(lambda *_: True).bfloat16())


@pytest.mark.parametrize(
    ("argument", "feature"),
    [
        ({"sliding_window_size": 4}, "a sliding window"),
        ({"logit_cap": 30.0}, "a logit cap"),
        ({"k_scale": 0.5}, "a scaled KV cache"),
        ({"is_cross_attn": True}, "cross-attention"),
        ({"sinks": torch.zeros(3)}, "attention sinks"),
    ],
)
def test_what_is_not_provided_is_refused_by_name(argument: dict[str, object], feature: str) -> None:
    case = Case(8, 3, 3, new=[1, 1, 1])
    with pytest.raises(NotImplementedError, match=feature):
        case.decode(None, None, **argument)
