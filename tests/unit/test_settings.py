"""The tool's own settings, where they are no plain value."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from draftgate import settings


@pytest.mark.parametrize(
    ("writable", "shared"),
    [
        ({"lock"}, True),
        # Only root may write /run/lock, and has made the folder for all.
        ({"draftgate"}, True),
        (set(), False),
    ],
)
def test_the_lock_is_everybodys_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: set[str], shared: bool
) -> None:
    monkeypatch.setattr(settings, "_SYSTEM", tmp_path / "lock")
    monkeypatch.setattr(os, "access", lambda path, _mode: path.name in writable)
    monkeypatch.delenv("DRAFTGATE_LOCK_DIR", raising=False)
    found = settings.Settings().lock_dir
    assert (found == tmp_path / "lock" / "draftgate") is shared
