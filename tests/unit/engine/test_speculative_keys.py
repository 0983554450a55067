"""Keys of vLLM's --speculative-config that only the engine knows."""

from __future__ import annotations

import json

import pytest

from draftgate.cli.load import load
from draftgate.errors import ProfileError

CUDA13 = "engine.line=cuda13"
KEYS = "speculation.engine_keys"


def _config(*sets: str) -> dict[str, object]:
    words = load("vllm-eagle", sets).command.argv()
    found: dict[str, object] = json.loads(words[words.index("--speculative-config") + 1])
    return found


def test_they_stand_beside_what_the_profile_states() -> None:
    """The drafter's own backend, without which 0.33.0 hands it the target's; lists are written as such."""
    plain = _config(CUDA13)
    own = [f"{KEYS}.attention_backend=FLASH_ATTN", f"{KEYS}.num_speculative_tokens_per_batch_size=[1, 2]"]
    assert _config(CUDA13, *own) == plain | {
        "attention_backend": "FLASH_ATTN",
        "num_speculative_tokens_per_batch_size": [1, 2],
    }
    assert _config(f"{KEYS}.draft_tensor_parallel_size=1")["draft_tensor_parallel_size"] == 1
    assert _config(f"{KEYS}.rejection_sample_method=strict")["rejection_sample_method"] == "strict"


@pytest.mark.parametrize(
    ("profile", "sets", "key", "what", "near"),
    [
        ("vllm-eagle", (), "attention_backend=FLASH_ATTN", "of vllm 0.19.1 has no key", "moe_backend"),
        ("vllm-eagle", (CUDA13,), "attention_backend=FLASH_ATN", "does not know the value", "FLASH_ATTN"),
        ("vllm-eagle", (), 'draft_tensor_parallel_size="1"', "must be integer or null", None),
        ("vllm-eagle", (), "model=x", "is stated by drafter.model", None),
        ("vllm-eagle", (), "num_speculative_tokens=2", "is stated by speculation.num_spec", None),
        ("sglang-eagle", (), "attention_backend=triton", "state SGLang's own flags in engine_flags", None),
    ],
)
def test_what_the_pin_does_not_take_is_refused_where_it_is_said(
    profile: str, sets: tuple[str, ...], key: str, what: str, near: str | None
) -> None:
    with pytest.raises(ProfileError) as caught:
        load(profile, [*sets, f"{KEYS}.{key}"])
    (fault,) = caught.value.faults
    assert (fault.path, fault.origin) == (f"{KEYS}.{key.partition('=')[0]}", "--set")
    assert what in fault.what
    assert fault.nearest == near


@pytest.mark.parametrize("flag", ["speculative-config", "speculative-config.attention_backend"])
def test_the_flag_itself_names_the_way(flag: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load("vllm-eagle", [f'engine_flags={{"{flag}" = "FLASH_ATTN"}}'])
    (fault,) = caught.value.faults
    assert KEYS in fault.what
