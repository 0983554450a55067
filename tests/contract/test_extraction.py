"""The committed contracts are what the pinned wheels say, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftgate.cli.load import catalogue, load
from draftgate.engine.contract import CONTRACTS, load_contract
from draftgate.engine.extraction.package import _opened, as_text, extract
from draftgate.engine.pins import PINS as ENGINE_PINS
from draftgate.errors import EngineMissing, InstallFailed
from draftgate.profile.model import Line
from tools.contracts.pins import PINS, fresh


def complaints_about_what_is_rendered(pin: str, folder: Path) -> dict[str, str]:
    """What the parser in the wheel of ``pin``, which lies in ``folder``, says to the profiles' commands."""
    engine = next(one for one in ENGINE_PINS if one.id == pin)
    lines = {}
    for name in catalogue().names():
        usual = load(name).pin
        if usual.engine is engine.engine and (usual.line is Line.CPU) is (engine.line is Line.CPU):
            lines[name] = list(load(name, [f"engine.line={engine.line}"]).command.argv()[3:])
    assert len(lines) >= 2
    (wheel,) = folder.glob(f"{engine.distribution.replace('-', '_')}-{engine.version}-*.whl")
    with _opened(wheel) as package:
        platform = "cpu" if engine.cpu else "cuda"
        script = str(Path(__file__).with_name("pinned_parser.py"))
        done = subprocess.run(
            [sys.executable, script, str(package.root), package.name, platform],
            input=json.dumps(lines),
            capture_output=True,
            text=True,
            cwd=folder,
            check=True,
        )
    complaints: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return complaints


@pytest.mark.parametrize("pin", PINS.values(), ids=PINS.keys())
def test_contract_is_what_the_pinned_wheel_says(pin: object, tmp_path: Path) -> None:
    """And its own parser takes every command that is rendered for it."""
    pinned = PINS[pin.id]  # type: ignore[attr-defined]
    try:
        extraction = fresh(pinned, tmp_path)
        complaints = complaints_about_what_is_rendered(pinned.id, tmp_path)
    except InstallFailed as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{error.what}: {error.why}")
    finally:
        for wheel in tmp_path.glob("*.whl"):
            wheel.unlink()  # half a gigabyte each
    assert complaints == {}
    assert as_text(extraction.document) == (CONTRACTS / f"{pinned.id}.json").read_text(encoding="utf-8")


def test_every_contract_has_a_pin_and_says_which() -> None:
    assert {file.stem for file in CONTRACTS.glob("*.json")} == set(PINS)
    for pin in PINS.values():
        contract = load_contract(pin.id)
        assert (contract.pin, contract.distribution, contract.version) == (
            pin.id,
            pin.distribution,
            pin.version,
        )


def test_a_folder_without_an_engine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    with pytest.raises(EngineMissing, match="there is no engine in"):
        extract(tmp_path / "vllm")


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "vllm-1-py3-none-any.whl"
    file.write_bytes(b"no archive")
    with pytest.raises(EngineMissing, match="cannot be read as a wheel"):
        extract(file)


def test_a_parser_that_a_placeholder_decides_is_refused(tmp_path: Path) -> None:
    """A choice that comes from a missing library would be a guess."""
    source = tmp_path / "sglang/srt/server_args.py"
    source.parent.mkdir(parents=True)
    source.write_text(
        "import torch\n"
        "class ServerArgs:\n"
        "    @staticmethod\n"
        "    def add_cli_args(parser):\n"
        "        parser.add_argument('--device', default=torch.default_device)\n"
    )
    with pytest.raises(EngineMissing, match="cannot be built here") as caught:
        extract(tmp_path / "sglang")
    assert caught.value.why is not None
    assert "placeholder for torch.default_device" in caught.value.why
