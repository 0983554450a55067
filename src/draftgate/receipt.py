"""The receipt: the machine-readable record of a run, from which it can be judged and repeated."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

SCHEMA = 1


@dataclass(frozen=True)
class Machine:
    """Hardware by model names and sizes alone: no host name, no address, no serial number.

    Attributes:
        cpus: cores that this process may use.
        accelerators: one model name for each GPU that NVIDIA's driver shows.
        memory_bytes: of the whole machine; None where the system does not say.
    """

    cpu: str | None
    cpus: int
    memory_bytes: int | None
    accelerators: tuple[str, ...]
    system: str
    python: str


@dataclass(frozen=True)
class ModelFile:
    name: str
    bytes: int


@dataclass(frozen=True)
class ModelDigest:
    """A model folder, cheaply: every file's size and the SHA-256 of config.json.

    Hashing hundreds of gigabytes of weights would take longer than many a run.
    """

    files: tuple[ModelFile, ...]
    config_sha256: str | None


@dataclass(frozen=True)
class Receipt:
    """Attributes:
    kind: what ran, such as ``bench``.
    engine: distribution and version as far as known, and the rendered command without secrets.
    models: digests by role (``target``, ``drafter``), where the models are folders of this machine.
    workload: what was asked, with the digest of the prompts.
    figures: None where the measurement was refused.
    findings: why it was refused, and what to keep in mind.
    """

    kind: str
    created: str
    draftgate: str
    machine: Machine
    engine: Mapping[str, object]
    models: Mapping[str, ModelDigest]
    workload: Mapping[str, object]
    figures: Mapping[str, object] | None
    findings: tuple[Mapping[str, object], ...]
    requests: tuple[Mapping[str, object], ...] = ()

    def as_json(self) -> dict[str, object]:
        return {"schema": SCHEMA, **asdict(self)}


def now() -> str:
    """UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def draftgate_version() -> str:
    return version("draftgate")


def digest(value: object) -> str:
    """SHA-256 of ``value`` as compact JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def machine() -> Machine:
    """This machine."""
    return Machine(
        cpu=_cpu_model(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=_memory(),
        accelerators=_accelerators(Path("/proc/driver/nvidia/gpus")),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
    )


def model_digest(folder: Path) -> ModelDigest | None:
    """The digest of a model folder, or None where ``folder`` is none (a name on a hub)."""
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.iterdir() if path.is_file())
    config = folder / "config.json"
    return ModelDigest(
        files=tuple(ModelFile(path.name, path.stat().st_size) for path in files),
        config_sha256=hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None,
    )


def write_json(path: Path, value: object) -> None:
    """Write ``value`` whole or not at all, so that a reader never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _accelerators(folder: Path) -> tuple[str, ...]:
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/information"))]
    lines = [line for text in texts for line in text.splitlines()]
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Model:"))


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
