"""Engine environments: one virtual environment per pin, in the data folder, keyed by its lock.

For a CPU, torch comes first and by its exact version with local part (``2.13.0+cpu``): no package index
but PyTorch's own has that build, so a CUDA build of several GB can never be taken by mistake. Everything
else comes from the pin's lock, by hash and without its dependencies' opinions; for a GPU torch too, since
the index's own build is the one for CUDA.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from draftgate.data import data_root
from draftgate.engine.pins import PINS, Pin
from draftgate.errors import AlreadyRunning, EngineMissing, InstallFailed, UnknownName
from draftgate.profile.catalogue import nearest
from draftgate.profile.model import Line
from draftgate.settings import settings

_MARKER = "draftgate-environment.json"
_LAST_LINES = 12


@dataclass(frozen=True)
class Progress:
    """Where an installation stands.

    Attributes:
        step: what is done now, in words.
        done, total: packages seen and to be seen; None while they are not counted.
    """

    step: str
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Environment:
    """A finished environment, as its marker file tells.

    Attributes:
        python: the interpreter in it.
        torch_source: ``wheel folder`` or the address of the index that torch came from.
    """

    pin: str
    version: str
    torch: str
    torch_source: str
    python: str
    python_version: str
    lock_sha256: str
    made_at: str


def pin_named(name: str) -> Pin:
    """The pin of that id.

    Raises:
        UnknownName: there is none.
    """
    for pin in PINS:
        if pin.id == name:
            return pin
    ids = [pin.id for pin in PINS]
    near = nearest(name, ids)
    raise UnknownName(
        f"there is no engine {name!r}",
        why=f"known are: {', '.join(ids)}",
        next_step=f"draftgate engine install {near}" if near else "draftgate engine list",
    )


def folder_of(pin: Pin) -> Path:
    """Where the environment of a pin lies or would lie; another lock or torch gives another folder.

    Raises:
        EngineMissing: the pin has no lock, so no environment can be made here.
    """
    if not pin.lock.exists():
        raise EngineMissing(
            f"{pin.engine} {pin.version} cannot be installed here",
            where=pin.id,
            why="there is no lock of its requirements yet; its command can be rendered and run elsewhere",
            next_step="draftgate engine list shows what can be installed",
        )
    key = hashlib.sha256(pin.lock.read_bytes() + pin.torch.encode())
    if pin.own_package is not None:
        for file in sorted((data_root() / pin.own_package / "src").rglob("*.py")):
            key.update(file.read_bytes())
    return settings().data_dir / "engines" / f"{pin.id}-{key.hexdigest()[:12]}"


def installed(pin: Pin) -> Environment | None:
    """The environment of a pin, or None where there is none or an unfinished one."""
    try:
        return Environment(**json.loads((folder_of(pin) / _MARKER).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def engine_python(pin: Pin) -> Path:
    """The interpreter that runs the engine.

    Raises:
        EngineMissing: the environment was never made, or its interpreter is gone, or there is but a wheel.
    """
    if pin.line is Line.CUSTOM:
        if pin.python is None:
            raise EngineMissing(
                "a wheel alone cannot be launched",
                where="engine.source",
                next_step="install it in an environment of its own, and name its bin/python",
            )
        return pin.python
    given = settings().engine_python
    if given is not None:
        return _holding(pin, given)
    environment = installed(pin)
    if environment is None or not os.access(environment.python, os.X_OK):
        raise EngineMissing(
            f"{pin.engine} {pin.version} is not installed for {pin.id!r}",
            where=str(folder_of(pin)),
            why=None if environment is None else f"its interpreter {environment.python} is gone",
            next_step=f"draftgate engine install {pin.id}",
        )
    return Path(environment.python)


def _holding(pin: Pin, python: Path) -> Path:
    """``python``, if the pinned version is in its environment."""
    name = pin.distribution.replace("-", "_")
    if not list(python.parent.parent.glob(f"lib/python3*/site-packages/{name}-{pin.version}.dist-info")):
        raise EngineMissing(
            f"{pin.engine} {pin.version} is not what this image holds",
            where=f"DRAFTGATE_ENGINE_PYTHON={python}",
            next_step=f"use the image of {pin.id}",
        )
    return python


def install(pin: Pin, report: Callable[[Progress], None], *, force: bool = False) -> Environment:
    """Make the environment of ``pin``, unless it is there; leaves nothing half done behind.

    Raises:
        InstallFailed: no fitting Python, too little disk, or pip failed (its last lines are in the reason).
        AlreadyRunning: another process installs the same.
    """
    existing = installed(pin)
    if existing is not None and not force:
        return existing
    folder = folder_of(pin)
    python = find_python(pin)
    _check_disk(pin, folder)
    with _sole_installer(folder):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return _build(pin, folder, python, report)
        except BaseException:
            report(Progress("taking away what was begun"))
            shutil.rmtree(folder, ignore_errors=True)
            raise


def remove(pin: Pin) -> bool:
    """Remove the environment of ``pin``; False where there was none."""
    folder = folder_of(pin)
    if not folder.exists():
        return False
    with _sole_installer(folder):
        shutil.rmtree(folder)
    return True


def find_python(pin: Pin) -> Path:
    """An interpreter with venv that the pin's lock covers: this one, else the newest on the path.

    Raises:
        InstallFailed: there is none.
    """
    wanted = range(pin.max_python, pin.min_python - 1, -1)
    names = [shutil.which(f"python3.{minor}") for minor in wanted]
    here = [sys.executable] if sys.version_info[0] == 3 and sys.version_info[1] in wanted else []
    without_venv = None
    for candidate in [*here, *filter(None, names)]:
        # Debian ships python3 without ensurepip until python3-venv is installed.
        if (
            subprocess.run(
                [candidate, "-I", "-c", "import venv, ensurepip"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return Path(candidate)
        without_venv = candidate
    span = f"3.{pin.min_python} to 3.{pin.max_python}"
    if without_venv:
        raise InstallFailed(
            f"{without_venv} cannot make virtual environments",
            why="its venv and ensurepip modules are missing",
            next_step=f"install the package {Path(without_venv).name}-venv with the system's package manager",
        )
    raise InstallFailed(
        f"{pin.engine} {pin.version} needs Python {span}",
        why=f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, and no other was found on the path",
        next_step=f"install Python 3.{pin.min_python} with venv (python3.{pin.min_python}-venv), then again",
    )


def _check_disk(pin: Pin, folder: Path) -> None:
    parent = next(path for path in folder.parents if path.exists())
    free = shutil.disk_usage(parent).free
    if free < pin.disk_bytes:
        raise InstallFailed(
            f"too little disk: {_gib(free)} GiB free, {_gib(pin.disk_bytes)} GiB needed",
            where=str(parent),
            next_step="free some, or name another folder with DRAFTGATE_DATA_DIR",
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"


@contextmanager
def _sole_installer(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_suffix(".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"another process is installing {folder.name}", where=str(lock), next_step="wait for it"
            ) from None
        yield


def _build(pin: Pin, folder: Path, python: Path, report: Callable[[Progress], None]) -> Environment:
    report(Progress(f"virtual environment with {python.name}"))
    _run([str(python), "-m", "venv", str(folder)], lambda _: None)
    inner = folder / "bin" / "python"
    source = _install_torch(pin, inner, report) if pin.cpu else "the lock"
    lock = pin.lock.read_text(encoding="utf-8")
    total = sum(1 for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#")))
    seen = 0

    def line_seen(line: str) -> None:
        nonlocal seen
        word, _, rest = line.strip().partition(" ")
        if word in ("Collecting", "Processing", "Ignoring"):
            seen += 1
            report(Progress(Path(rest.split(" ")[0].rstrip(":")).name, min(seen, total), total))
        elif line.startswith("Installing collected packages"):
            report(Progress("unpacking", total, total))

    _run(_pip(inner, "--no-deps", "--require-hashes", "-r", str(pin.lock)), line_seen)
    if pin.own_package is not None:
        report(Progress(pin.own_package))
        _run(_pip(inner, "--no-deps", str(data_root() / pin.own_package)), lambda _: None)
    # pip compiles one file at a time, and not at all where PYTHONDONTWRITEBYTECODE is set; without bytecode
    # every start of the engine compiles some ten thousand files.
    report(Progress("compiling bytecode"))
    _run(
        [str(inner), "-m", "compileall", "-q", "-j", "0", str(folder / "lib")], lambda _: None, may_fail=True
    )
    report(Progress("checking"))
    facts = json.loads(_run([str(inner), "-I", "-c", _CHECK, pin.distribution], lambda _: None))
    wrong_device = bool(facts["cuda"]) is pin.cpu
    if wrong_device or facts["version"] != pin.version or facts["torch"] != pin.torch:
        raise InstallFailed(f"the environment is not what was asked for: {facts}", where=str(folder))
    environment = Environment(
        pin=pin.id,
        version=facts["version"],
        torch=facts["torch"],
        torch_source=source,
        python=str(inner),
        python_version=facts["python"],
        lock_sha256=hashlib.sha256(lock.encode()).hexdigest(),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    (folder / _MARKER).write_text(json.dumps(asdict(environment), indent=2) + "\n")
    return environment


# The index's own build of torch says for which CUDA it is in itself, not in its metadata.
_CHECK = """
import importlib.metadata as m, json, platform, sys
names = [d.metadata["Name"] or "" for d in m.distributions()]
torch = {"__version__": m.version("torch")}
built = m.distribution("torch").locate_file("torch/version.py")
if built.exists():
    exec(built.read_text(), torch)
print(json.dumps({"version": m.version(sys.argv[1]), "torch": str(torch["__version__"]),
    "python": platform.python_version(), "cuda": sorted(n for n in names if n.startswith("nvidia-"))}))
"""


def _install_torch(pin: Pin, python: Path, report: Callable[[Progress], None]) -> str:
    """Install torch; a wheel that pip finds by itself comes before PyTorch's index. Returns the source."""
    requirement = f"torch=={pin.torch}"
    report(Progress(f"{requirement}, from a wheel folder if there is one"))
    try:
        _run(_pip(python, "--no-deps", requirement), lambda _: None)
    except InstallFailed:
        index = settings().torch_index
        report(Progress(f"{requirement}, from {index} (about 200 MB)"))
        _run(_pip(python, "--no-deps", "--index-url", index, requirement), lambda _: None)
        return index
    return "wheel folder"


def _pip(python: Path, *arguments: str) -> list[str]:
    options = ["--no-input", "--disable-pip-version-check", "--no-compile", "--progress-bar", "off"]
    wheelhouse = settings().wheelhouse
    if wheelhouse is not None:
        options += ["--find-links", str(wheelhouse)]
    return [str(python), "-m", "pip", "install", *options, *arguments]


def _run(argv: list[str], line_seen: Callable[[str], None], *, may_fail: bool = False) -> str:
    """Run one step in its own session, so that Ctrl-C reaches this process alone, which cleans up."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    lines: list[str] = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, start_new_session=True
    ) as process:
        assert process.stdout is not None  # noqa: S101
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                line_seen(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 and not may_fail:
        shown = [line for line in lines if not line.startswith("WARNING")][-_LAST_LINES:]
        raise InstallFailed(
            f"{' '.join(Path(argv[0]).name if i == 0 else word for i, word in enumerate(argv[:4]))} … failed",
            why=("\n         ".join(shown) or f"exit status {process.returncode}"),
            next_step="look at the lines above: network, disk, or a hash; then the same command again",
        )
    return lines[-1] if lines else ""
