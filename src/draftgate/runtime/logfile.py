"""Logs of what runs detached: kept from the run before, and followed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.2
_BLOCK = 65536


def open_anew(path: Path) -> int:
    """A descriptor of an empty log (mode 0600, appending); the last run's becomes ``NAME.1``."""
    if path.exists():
        os.replace(path, path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def last_lines(path: Path, count: int | None, size: int | None = None) -> bytes:
    """The last ``count`` lines, or all, of the first ``size`` bytes, or all."""
    with path.open("rb") as file:
        data = file.read(-1 if size is None else size)
    if count is None:
        return data
    return b"".join(data.splitlines(keepends=True)[-count:]) if count else b""


def follow(path: Path, offset: int, going: Callable[[], bool]) -> Iterator[bytes]:
    """What is written from ``offset`` on, until nothing is ``going`` any more and all of it is read."""
    file = path.open("rb")
    try:
        file.seek(offset)
        while True:
            last_round = not going()
            while data := file.read(_BLOCK):
                yield data
            if last_round:
                return
            time.sleep(_POLL_SECONDS)
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)  # it grew too large and was cut
    finally:
        file.close()
