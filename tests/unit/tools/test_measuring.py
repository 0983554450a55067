"""What is summed from SGLang's lines per request, and what of a log is kept."""

from __future__ import annotations

import json
from pathlib import Path

from draftgate.metrics.sample import SpeculationCounters
from tools.wrongdrafters.measure import drafts_of_requests, telling_lines


def test_requests_are_summed_from_the_first_that_counts(tmp_path: Path) -> None:
    lines = [
        {"spec_accept_histogram": [9, 9, 9, 9], "spec_verify_ct": 36, "spec_num_proposed_drafts": 108},
        # Two steps that accepted nothing, one that accepted one, three that accepted all.
        {"spec_accept_histogram": [2, 1, 0, 3], "spec_verify_ct": 6, "spec_num_proposed_drafts": 18},
        # SGLang leaves out what never happened at the end.
        {"spec_accept_histogram": [4], "spec_verify_ct": 4, "spec_num_proposed_drafts": 12},
    ]
    for hour, part in (("09", lines[:2]), ("10", lines[2:])):
        text = "".join(json.dumps(line) + "\n" for line in part)
        (tmp_path / f"sglang-request-metrics-20260101_{hour}.log").write_text(text)
    assert drafts_of_requests(tmp_path, 1, 3) == SpeculationCounters(10, 30, 10, (4, 3, 3))


def test_lines_of_a_log_without_what_is_this_machine_s(tmp_path: Path) -> None:
    log = f"""\
[draftgate    0.0 s] starting Python
(Worker pid=24226) INFO 12-01 10:19:47 [proposer.py:1440] Detected a drafter without its own lm_head
(VllmWorker-0 pid=7) INFO 12-01 10:19:48 [proposer.py:1440] Detected a drafter without its own lm_head
(Worker pid=24226) INFO 12-01 10:19:47 [loader.py:1] Loading took 0.02 seconds
[2026-12-01 10:18:44 TP0] Scheduler hit an exception: RuntimeError: shapes of {tmp_path}/model.safetensors
[draftgate   87.8 s] SIGTERM: running requests get 20 s; Ctrl-C now ends it at once
(APIServer pid=6504) ERROR 12-01 10:46:39 [async_llm.py:906] EngineDeadError: EngineCore encountered an issue.
"""
    assert telling_lines(log, tmp_path) == [
        "Detected a drafter without its own lm_head",
        "Scheduler hit an exception: RuntimeError: shapes of DRAFTER/model.safetensors",
    ]
