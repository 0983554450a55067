"""What SGLang tells of a request's drafts, by the names of each version."""

from __future__ import annotations

import pytest

from draftgate.metrics.requests import request_counters, total
from draftgate.metrics.sample import SpeculationCounters

# 10 verify steps with K = 3: 4 accepted nothing, 3 one, 2 two, 1 all three.
COUNTED = SpeculationCounters(10, 30, 10, (6, 3, 1))


@pytest.mark.parametrize(
    "told",
    [
        # 0.5.10.post1, 0.5.20 and 0.5.23: managers/tokenizer_manager.py
        {"spec_accept_histogram": [4, 3, 2, 1], "spec_draft_token_num": 30},
        {
            "spec_accept_histogram": [4, 3, 2, 1],
            "spec_correct_drafts_histogram": [4, 3, 2, 1],
            "spec_num_proposed_drafts": 30,
            "spec_proposed_drafts": 30,
        },
        {"spec_correct_drafts_histogram": [4, 3, 2, 1], "spec_num_proposed_drafts": 30, "id": "a"},
    ],
)
def test_counters_of_a_request(told: dict[str, object]) -> None:
    assert request_counters(told) == COUNTED


@pytest.mark.parametrize("told", [{}, {"spec_correct_drafts_histogram": [], "spec_num_proposed_drafts": 0}])
def test_a_request_without_a_verify_step_tells_none(told: dict[str, object]) -> None:
    assert request_counters(told) is None


@pytest.mark.parametrize(
    "told",
    [
        {"spec_accept_histogram": [4, 3]},
        {"spec_accept_histogram": 7, "spec_draft_token_num": 30},
        {"spec_accept_histogram": [4, -1], "spec_draft_token_num": 30},
        {"spec_accept_histogram": [4, "3"], "spec_draft_token_num": 30},
        {"spec_accept_histogram": [4, 3], "spec_draft_token_num": "many"},
    ],
)
def test_fields_that_cannot_be(told: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"histogram|float"):
        request_counters(told)


def test_positions_that_one_request_did_not_reach_are_counted_all_the_same() -> None:
    short = request_counters({"spec_accept_histogram": [2, 1], "spec_draft_token_num": 9})
    assert short == SpeculationCounters(3, 9, 1, (1,))
    assert total((short, COUNTED)) == SpeculationCounters(13, 39, 11, (7, 3, 1))
    assert total((short,), 3) == SpeculationCounters(3, 9, 1, (1, 0, 0))
    assert total((), 3) == SpeculationCounters(0, 0, 0, (0, 0, 0))
