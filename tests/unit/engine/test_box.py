"""The profiles of the box: their whole commands on both CUDA lines, and what they differ in."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from draftgate.cli.load import load
from draftgate.errors import ProfileError
from draftgate.profile.layers import dotted
from draftgate.profile.parity import differences
from draftgate.render.command import as_json
from tests.conftest import Golden

BOX = ("vllm-baseline", "vllm-eagle", "sglang", "sglang-eagle", "sglang-eagle-custom")
LINES = ("cuda12", "cuda13")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("name", BOX)
def test_whole_command_and_environment(name: str, line: str, golden: Golden) -> None:
    rendered = as_json(load(name, [f"engine.line={line}"]).command)
    golden(f"box/{name}.{line}.json", json.dumps(rendered, indent=2) + "\n")


@pytest.mark.parametrize(("a", "b"), list(combinations(BOX, 2)))
def test_arms_differ_only_in_what_they_are_meant_to(a: str, b: str) -> None:
    found = differences(load(a).resolved, load(b).resolved)
    assert [dotted(one.path) for one in found if not one.meant] == []


def test_a_difference_that_is_not_meant_is_found() -> None:
    found = differences(load("sglang").resolved, load("sglang-eagle", ["target.max_model_len=4096"]).resolved)
    assert [dotted(one.path) for one in found if not one.meant] == ["target.max_model_len"]


def test_both_engines_speculate_with_the_same_drafter() -> None:
    vllm, sglang = load("vllm-eagle").profile, load("sglang-eagle").profile
    assert vllm.drafter == sglang.drafter
    assert vllm.speculation == sglang.speculation


@pytest.mark.parametrize(
    ("name", "sets", "fault"),
    [
        ("sglang", "env.SGLANG_ENABLE_SPECV2=1", "SGLANG_ENABLE_SPEC_V2"),
        ("vllm-baseline", "engine_flags.mm-encoder-tpmode=data", "--mm-encoder-tp-mode"),
        ("sglang", "engine_flags.attention-backend=flashinfr", "flashinfer"),
    ],
)
def test_what_the_pin_does_not_know_is_refused_with_the_nearest_name(
    name: str, sets: str, fault: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        load(name, [sets])
    assert [one.nearest for one in caught.value.faults] == [fault]
