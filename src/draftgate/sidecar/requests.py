"""SGLang's file of finished requests, read on from where the last reading ended."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from draftgate.metrics.requests import request_counters, total
from draftgate.metrics.sample import SpeculationCounters

# Of what SGLang writes anew each hour: sglang-request-metrics-20261201_10.log.
_NAMES = "sglang-request-metrics-*.log"
# And of its log of requests, the hours that are over.
_OVER = "*.log.2*"


@dataclass(frozen=True)
class RequestFiles:
    """Where SGLang tells of each finished request.

    Attributes:
        root, below: the folder is ``root/below``, in which a ``*`` stands for the launch.
        positions: draft tokens in a row per verify step.
    """

    root: Path
    below: str
    positions: int


class RequestReader:
    """The sum over all requests that are told of; those of an engine's next start lie in another folder."""

    def __init__(self, files: RequestFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._forget(None)

    def read(self) -> SpeculationCounters | None:
        """The counters of all requests that have ended, or None where there is no file to read.

        A line that is not what SGLang writes is left out: a count that is short beats none.
        """
        with self._lock:
            folder = next(iter(sorted(self._files.root.glob(self._files.below))), None)
            if folder != self._folder:
                self._forget(folder)
            files = sorted(folder.glob(_NAMES)) if folder else []
            for path in files:
                self._read_on(path)
            over = folder.glob(_OVER) if folder else ()
            for path in (*files[:-1], *over):
                # SGLang begins a file each hour and takes none away: they would fill the disk.
                with suppress(OSError):
                    path.unlink()
            return self._sum if files else None

    def _forget(self, folder: Path | None) -> None:
        self._folder = folder
        self._read_to: dict[Path, int] = {}
        self._sum = total((), self._files.positions)

    def _read_on(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                file.seek(self._read_to.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._read_to[path] = self._read_to.get(path, 0) + len(line)
                    self._add(line)
        except OSError:
            return  # it was removed with its launch

    def _add(self, line: bytes) -> None:
        try:
            told = request_counters(json.loads(line))
        except (ValueError, AttributeError):
            return
        if told is not None:
            self._sum = total((self._sum, told))
