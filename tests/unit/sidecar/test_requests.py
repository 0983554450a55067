"""SGLang's file of finished requests: read on, cut lines, the next hour, the next launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from draftgate.cli.load import load
from draftgate.metrics.sample import SpeculationCounters
from draftgate.sidecar.config import configure
from draftgate.sidecar.requests import RequestFiles, RequestReader

LINE = json.dumps({"spec_accept_histogram": [4, 3, 2, 1], "spec_num_proposed_drafts": 30}) + "\n"


def counted(requests: int) -> SpeculationCounters:
    return SpeculationCounters(
        10 * requests, 30 * requests, 10 * requests, (6 * requests, 3 * requests, requests)
    )


def folder(state: Path, launch: str) -> Path:
    made = state / "work" / launch / "requests"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def reader(tmp_path: Path) -> RequestReader:
    return RequestReader(RequestFiles(tmp_path, "work/*/requests", 3))


def test_without_a_file_nothing_is_known(reader: RequestReader, tmp_path: Path) -> None:
    assert reader.read() is None
    made = folder(tmp_path, "a")
    assert reader.read() is None
    (made / "sglang-request-metrics-20261201_10.log").touch()
    assert reader.read() == counted(0)


def test_each_line_counts_once_and_a_cut_one_when_it_is_whole(reader: RequestReader, tmp_path: Path) -> None:
    path = folder(tmp_path, "a") / "sglang-request-metrics-20261201_10.log"
    path.write_text(LINE + LINE[:20])
    assert reader.read() == counted(1)
    assert reader.read() == counted(1)
    path.write_text(LINE + LINE)
    assert reader.read() == counted(2)
    # Of a plain request, and of no use.
    path.write_text(LINE + LINE + '{"id": "c"}\n{"spec_accept_histogram": 7}\n[]\nno JSON\n\xff\n')
    assert reader.read() == counted(2)
    path.with_name("sglang-request-metrics-20261201_11.log").write_text(LINE)
    path.with_name("box_0.log.2026-12-01_10").write_text("over")
    assert reader.read() == counted(3)
    # Those of an hour that is over would fill the disk.
    assert [file.name[-6:] for file in path.parent.iterdir()] == ["11.log"]
    assert reader.read() == counted(3)


def test_another_launch_begins_anew(reader: RequestReader, tmp_path: Path) -> None:
    first = folder(tmp_path, "a") / "sglang-request-metrics-20261201_10.log"
    first.write_text(LINE + LINE)
    assert reader.read() == counted(2)
    first.unlink()
    first.parent.rmdir()
    second = folder(tmp_path, "b") / first.name
    second.write_text(LINE)
    assert reader.read() == counted(1)


@pytest.mark.parametrize(
    ("profile", "sets", "files"),
    [
        ("sglang-cpu", [], None),
        ("vllm-cpu-eagle", [], None),
        ("sglang-cpu-eagle", ["engine_flags.export-metrics-to-file-dir=/data/told"], ("/data", "told", 3)),
        ("sglang-cpu-eagle", [], ("STATE", "work/*/requests", 3)),
    ],
)
def test_where_it_lies(
    profile: str, sets: list[str], files: tuple[str, str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftgate.settings import Settings

    monkeypatch.setattr("draftgate.sidecar.config.settings", lambda: Settings(state_dir=Path("STATE")))
    loaded = load(profile, sets)
    found = configure(loaded.profile, loaded.pin, "http://127.0.0.1:8000").request_files
    assert found == (None if files is None else RequestFiles(Path(files[0]), *files[1:]))
