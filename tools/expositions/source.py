"""Imports an engine from an unpacked wheel among what its environment has."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from importlib.machinery import PathFinder
from pathlib import Path

from draftgate.engine.extraction import placeholder

# 2026-01-01 00:00 UTC: `_created` series hold it, and a second run gives the same text.
EPOCH = 1767225600.0
PID = 4242


class _Installed(AbstractSet[str]):
    """The names of the modules that this environment has, and that do not ask for more than it has."""

    def __init__(self, package: str) -> None:
        self._not = {package, "sgl_kernel", "transformers"}

    def __contains__(self, name: object) -> bool:
        return name not in self._not and PathFinder.find_spec(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def take(package: str, source: Path, also: frozenset[str] = frozenset()) -> dict[str, str]:
    """From now on ``package`` comes from ``source``; returns its modules that could not be run.

    Clock and process id stand still, since both get into an exposition.
    """
    placeholder.REAL = _Installed(package)
    time.time = lambda: EPOCH
    os.getpid = lambda: PID
    return placeholder.install(package, str(source), also)


def refuse_if_metrics(failed: dict[str, str]) -> None:
    """Among what could not be run there may be kernels, but nothing that measures."""
    measuring = {name for name in failed if "metrics" in name or "observability" in name}
    if measuring:
        sys.exit(f"placeholders took the place of {', '.join(sorted(measuring))}")
