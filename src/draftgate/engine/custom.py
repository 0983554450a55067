"""The pin of an own build: what it is, and its contract, extracted on the spot and kept.

The contract is kept under ``DRAFTGATE_DATA_DIR/contracts`` by the package's files, their sizes and times, so
an own build that is being worked on is read anew whenever it changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from draftgate.engine.contract import Contract, load_contract, read_contract
from draftgate.engine.extraction.package import MARKS, as_text, companion_of, extract
from draftgate.engine.pins import MODULES, PINS, Pin
from draftgate.errors import EngineMissing
from draftgate.host.files import private_folder
from draftgate.profile.model import EngineName, Line
from draftgate.settings import settings

_SETTING = "DRAFTGATE_DATA_DIR"
# Finds the packages and imports neither: an engine's import takes seconds, and may need its GPU.
_LOOK = """
import importlib.metadata as m, importlib.util as u, json, sys
def version(names):
    for name in names:
        try:
            return name, m.version(name)
        except m.PackageNotFoundError:
            pass
    return names[0], None
engine = sys.argv[1]
spec = u.find_spec(engine)
print(json.dumps({"folder": list(spec.submodule_search_locations)[0] if spec else None,
    "engine": version((engine, engine + "-cpu")), "torch": version(("torch",))[1]}))
"""
_LIMIT_SECONDS = 60
_COMPANION = "flashinfer-python"


def custom(engine: EngineName, source: Path) -> tuple[Pin, Contract]:
    """The pin and the contract of an own build; the contract is unverified where its parser cannot be run.

    Args:
        source: the interpreter of its environment, or a wheel.

    Raises:
        EngineMissing: there is no such engine in it.
    """
    if source.suffix == ".whl":
        pin, package = _of_wheel(engine, source), source
    else:
        pin, package = _of_interpreter(engine, source)
    kept = private_folder(settings().data_dir, _SETTING) / "contracts" / f"{engine}-{_digest(package)}.json"
    try:
        document = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        try:
            document = extract(package).document
        except EngineMissing as error:
            return pin, _unverified(pin, str(error.why or error))
        if package.suffix == ".whl" and companion_of(package):
            # Its variables are read too, and are not in this wheel.
            document = {**document, "companions": {_COMPANION: None}}
        private_folder(kept.parent, _SETTING)
        scratch = kept.with_suffix(f".{os.getpid()}")
        scratch.write_text(as_text(document), encoding="utf-8")
        scratch.replace(kept)
    contract = read_contract(document)
    if contract.engine != engine.value:
        raise EngineMissing(f"{source} is {contract.engine}, not {engine}", next_step="state engine.name")
    return replace(pin, distribution=contract.distribution, version=contract.version or pin.version), contract


def _of_wheel(engine: EngineName, wheel: Path) -> Pin:
    try:
        names = set(zipfile.ZipFile(wheel).namelist())
    except FileNotFoundError:
        raise EngineMissing(
            "there is no such wheel", where=str(wheel), next_step="state engine.source"
        ) from None
    except (OSError, zipfile.BadZipFile) as error:
        raise EngineMissing("engine.source is no wheel", where=str(wheel), why=str(error)) from None
    distribution, _, rest = wheel.name.partition("-")
    version = rest.partition("-")[0]
    if not version or MARKS[engine.value] not in names:
        raise EngineMissing(
            f"there is no {engine} in this wheel", where=str(wheel), why=f"no {MARKS[engine.value]}"
        )
    return _pin(engine, distribution.replace("_", "-"), version, torch="", python=None)


def _of_interpreter(engine: EngineName, python: Path) -> tuple[Pin, Path]:
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _LOOK, engine.value],
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=True,
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineMissing(
            "engine.source cannot be run as a Python interpreter",
            where=str(python),
            why=_why(error),
            next_step="name the bin/python of the engine's environment, or a wheel",
        ) from error
    if found["folder"] is None:
        raise EngineMissing(
            f"{engine} is not installed for this interpreter",
            where=str(python),
            next_step="name the bin/python of the environment that has it",
        )
    distribution, version = found["engine"]
    pin = _pin(engine, distribution, version or "unknown", torch=found["torch"] or "", python=python)
    return pin, Path(found["folder"])


def _why(error: Exception) -> str:
    """Without the command, which holds a whole script."""
    match error:
        case subprocess.CalledProcessError():
            said = str(error.stderr or "").strip().splitlines()
            # What Python says of itself stands last, what others say first.
            telling = said[-1 if "Traceback" in said[0] else 0] if said else ""
            return telling[:200] or f"it ended with exit code {error.returncode}"
        case subprocess.TimeoutExpired():
            return f"it did not answer within {_LIMIT_SECONDS} s"
        case OSError():
            return error.strerror or str(error)
        case _:
            return "it did not answer as Python does"


def _pin(engine: EngineName, distribution: str, version: str, *, torch: str, python: Path | None) -> Pin:
    return Pin(
        "custom", engine, Line.CUSTOM, distribution, version, MODULES[engine], torch=torch, python=python
    )


def _unverified(pin: Pin, why: str) -> Contract:
    """The newest pin's contract under the build's own name, to choose between flags that were renamed."""
    newest = [one.id for one in PINS if one.engine is pin.engine][-1]
    return replace(
        load_contract(newest),
        pin=pin.id,
        distribution=pin.distribution,
        version=None if pin.version == "unknown" else pin.version,
        unverified=why,
    )


def _digest(package: Path) -> str:
    seen = hashlib.sha256()
    for file in _files(package):
        status = file.stat()
        seen.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _files(package: Path) -> Iterator[Path]:
    if package.is_file():
        yield package
        return
    for folder, folders, names in os.walk(package):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))
