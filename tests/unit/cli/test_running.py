"""`launch`, `up`, `down` and `logs` where nothing is to be started; the rest is in tests/unit/runtime."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftgate.cli.down import down
from draftgate.cli.launch import launch
from draftgate.cli.logs import logs
from draftgate.cli.up import up
from draftgate.errors import NotRunning, ProfileError
from draftgate.settings import settings


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of a machine on which nothing runs, and an engine that seems to be installed."""
    monkeypatch.setenv("DRAFTGATE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DRAFTGATE_LOCK_DIR", str(tmp_path / "lock"))
    monkeypatch.setattr("draftgate.runtime.environment.engine_python", lambda _: Path("/engine/bin/python"))
    settings.cache_clear()
    yield tmp_path / "state"
    settings.cache_clear()


def test_launch_dry_run(capsys: pytest.CaptureFixture[str], state_dir: Path) -> None:
    launch("vllm-cpu", ["server.port=8123"], dry_run=True)
    out = capsys.readouterr().out
    assert out.startswith("would be run by /engine/bin/python, at http://127.0.0.1:8123:\n")
    assert "--port 8123" in out
    assert not state_dir.exists()


def test_launch_dry_run_names_the_overlay_that_would_be_served(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    settings.cache_clear()
    launch("vllm-cpu-eagle", ["drafter.aux_layers=[2, 4, 6]"], dry_run=True)
    out = capsys.readouterr().out
    assert str(tmp_path / "data" / "overlays") in out
    assert "models/tiny-drafter" not in out
    assert not (tmp_path / "data").exists()


def test_up_dry_run(
    capsys: pytest.CaptureFixture[str], state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftgate.runtime.native.refuse_if_taken", lambda *_: None)
    sets = ["server.port=8123", "target.served_name=a b"]
    up("vllm-cpu", sets, sidecar=True, wait_lock=30, dry_run=True)
    draftgate = f"would start: {sys.executable} -P -m draftgate"
    options = "vllm-cpu --set server.port=8123 --set 'target.served_name=a b'"
    assert capsys.readouterr().out.splitlines() == [
        f"{draftgate} launch {options} --wait-lock 30",
        f"{draftgate} sidecar {options}",
    ]
    assert list(state_dir.iterdir()) == []


def test_up_of_a_broken_profile_starts_nothing(state_dir: Path) -> None:
    with pytest.raises(ProfileError):
        up("vllm-cpu", ["server.port=no"])
    assert not state_dir.exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_down_where_nothing_runs(capsys: pytest.CaptureFixture[str], dry_run: bool) -> None:
    down(dry_run=dry_run)
    assert capsys.readouterr().out == "nothing runs here\n"


def test_logs_where_nothing_ran(state_dir: Path) -> None:
    with pytest.raises(NotRunning) as caught:
        logs()
    assert caught.value.where == str(state_dir / "engine.log")
