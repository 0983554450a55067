"""Phases and progress of whole start-up logs, as real engines wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftgate.launch.log import LineCutter
from draftgate.launch.phases import Phase, PhaseReader, PhaseStarted, Progress
from tests.conftest import Golden

LOGS = sorted((Path(__file__).parents[2] / "fixtures" / "logs").iterdir())


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.stem)
def test_whole_logs(log: Path, golden: Golden) -> None:
    cutter, reader = LineCutter(), PhaseReader()
    lines = [text for text, _ in (*cutter.feed(log.read_bytes()), *cutter.end())]
    found = [
        f"{number:4} {_words(event)}" for number, line in enumerate(lines, 1) for event in reader.feed(line)
    ]
    golden(f"phases/{log.stem}.txt", "\n".join(found) + "\n")


def _words(event: PhaseStarted | Progress) -> str:
    return str(event.phase) if isinstance(event, PhaseStarted) else f"  {event.done}/{event.total}"


def test_ranks_that_lag_do_not_turn_it_back() -> None:
    reader = PhaseReader()
    assert reader.feed("(Worker_TP0 pid=1) INFO GPU KV cache size: 1,000 tokens") == (
        PhaseStarted(Phase.KV_CACHE),
    )
    assert reader.feed("(Worker_TP1 pid=2) INFO Starting to load model m...") == ()


def test_many_shards_are_one_phase() -> None:
    reader = PhaseReader()
    bar = "Loading safetensors checkpoint shards: {}% Completed | {}/64 [00:00<00:10,  6.40it/s]"
    events = [event for done in (0, 0, 1, 63, 64) for event in reader.feed(bar.format(done, done))]
    assert events == [PhaseStarted(Phase.WEIGHTS), *(Progress(done, 64) for done in (0, 1, 63, 64))]
