"""Own builds: their contract from the environment or the wheel itself, kept while nothing changes."""

from __future__ import annotations

import contextlib
import json
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftgate.cli import drafter
from draftgate.cli.diff import diff
from draftgate.cli.load import load
from draftgate.cli.render import compose_text
from draftgate.engine import custom
from draftgate.engine.contract import CONTRACTS
from draftgate.engine.extraction.package import Extraction
from draftgate.errors import EngineMissing, ProfileError
from draftgate.runtime.environment import engine_python
from draftgate.settings import settings
from tests.conftest import REPOSITORY


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    settings.cache_clear()
    yield tmp_path / "data"
    settings.cache_clear()


def own_build(folder: Path, version: str) -> Path:
    """An environment with a package that calls itself SGLang and has a parser that cannot be built."""
    venv.create(folder, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "sglang" / "srt").mkdir(parents=True)
    (site / "sglang" / "__init__.py").touch()
    (site / "sglang" / "srt" / "server_args.py").write_text("raise ImportError('no GPU here')\n")
    information = site / f"sglang-{version}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    return folder / "bin" / "python"


def test_a_build_whose_parser_cannot_be_run_is_shown_as_unverified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = own_build(tmp_path / "own", "0.5.99")
    loaded = load("sglang", ["engine.line=custom", f"engine.source={python}"])
    assert (loaded.pin.id, loaded.pin.version, loaded.pin.python) == ("custom", "0.5.99", python)
    assert engine_python(loaded.pin) == python
    assert capsys.readouterr().err.startswith("note: sglang 0.5.99 is unverified: ")
    # What is no flag of any pin passes: nobody knows what this build knows.
    load("sglang", ["engine.line=custom", f"engine.source={python}", "engine_flags.own-flag=1"])


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("/nowhere/python", "engine.source cannot be run as a Python interpreter"),
        ("/nowhere/sglang-1.0-py3-none-any.whl", "there is no such wheel"),
        (sys.executable, "sglang is not installed for this interpreter"),
    ],
)
def test_what_is_no_engine(source: str, what: str) -> None:
    with pytest.raises(EngineMissing) as caught:
        load("sglang", ["engine.line=custom", f"engine.source={source}"])
    assert caught.value.what == what


def test_what_is_run_in_vain_does_not_come_with_the_script() -> None:
    with pytest.raises(EngineMissing) as caught:
        load("sglang", ["engine.line=custom", "engine.source=/bin/sh"])
    assert caught.value.why
    assert "importlib" not in caught.value.why
    assert len(caught.value.why) <= 200


def test_what_counts_on_another_line_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = own_build(tmp_path / "own", "0.5.99")
    load("sglang-eagle", ["engine.line=custom", f"engine.source={python}"])
    left_out = "line.cuda12.env.SGLANG_ENABLE_SPEC_V2 (sglang-eagle.toml)"
    assert f"left out of an own build: {left_out}\n" in capsys.readouterr().err
    again = [f"engine.source={python}", "engine.line=custom", "env.SGLANG_ENABLE_SPEC_V2=0"]
    with contextlib.suppress(ProfileError):
        load("sglang-eagle", again)
    assert "left out" not in capsys.readouterr().err


def test_one_profile_against_itself_as_an_own_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = own_build(tmp_path / "own", "0.5.99")
    for other in ("@custom", "sglang@custom"):
        diff("sglang", other, [f"engine.source={python}"], as_json=True)
        keys = {one["key"]: one for one in json.loads(capsys.readouterr().out)["keys"]}
        assert keys["engine.line"]["a"]["value"] == "cuda12"
        assert keys["engine.line"]["b"]["value"] == "custom"
        assert keys["engine.source"]["a"] is None


def test_layers_that_an_own_build_feeds(tmp_path: Path) -> None:
    python = own_build(tmp_path / "own", "0.5.20")
    words = ["layers", "--drafter", str(REPOSITORY / "models/tiny-drafter"), "--pin", "custom"]
    target = ["--target", str(REPOSITORY / "models/tiny-target")]
    own = ["--engine", "sglang", "--source", str(python)]
    shown = CliRunner().invoke(drafter.app, [*words, *target, *own], catch_exceptions=False)
    assert "custom (sglang 0.5.20)  2, 4, 5 " in shown.output
    for half in ([], own[:2], own[2:]):
        assert CliRunner().invoke(drafter.app, [*words, *half]).exit_code == 2


def test_a_wheel_is_looked_at_and_not_launched(tmp_path: Path) -> None:
    wheel = tmp_path / "sglang-0.5.99-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sglang/srt/server_args.py", "raise ImportError\n")
    loaded = load("sglang", ["engine.line=custom", f"engine.source={wheel}"])
    assert (loaded.pin.version, loaded.contract.unverified is None) == ("0.5.99", False)
    with pytest.raises(EngineMissing):
        engine_python(loaded.pin)


def test_an_own_build_has_no_image(tmp_path: Path) -> None:
    python = own_build(tmp_path / "own", "0.5.99")
    with pytest.raises(ProfileError) as caught:
        compose_text(["sglang"], ["engine.line=custom", f"engine.source={python}"])
    assert [fault.path for fault in caught.value.faults] == ["engine.line"]


@pytest.mark.parametrize(
    "name", ["odd.whl", "sglang-0.5.99-py3-none-any.whl", "vllm-0.5.99-py3-none-any.whl"]
)
@pytest.mark.parametrize("whole", [False, True])
def test_what_only_calls_itself_a_wheel(tmp_path: Path, name: str, whole: bool) -> None:
    """Its flags would go unchecked, as those of a build whose parser cannot be run."""
    wheel = tmp_path / name
    wheel.write_bytes(b"junk")
    if whole:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("vllm/engine/arg_utils.py", "")
    with pytest.raises(EngineMissing):
        load("sglang", ["engine.line=custom", f"engine.source={wheel}"])


def test_a_contract_is_extracted_once_and_again_after_a_change(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = own_build(tmp_path / "own", "0.5.99")
    asked = ["engine.line=custom", f"engine.source={python}"]
    seen = []

    pinned = json.loads((CONTRACTS / "sglang-cpu.json").read_text())
    document = {**pinned, "pin": "custom", "version": "0.5.99"}

    def extract(package: Path) -> Extraction:
        seen.append(package)
        return Extraction(document, {})

    monkeypatch.setattr(custom, "extract", extract)
    for _ in range(2):
        assert load("sglang-cpu", asked).contract.unverified is None
    assert len(seen) == 1
    (seen[0] / "__init__.py").write_text("# changed\n")
    load("sglang-cpu", asked)
    assert len(seen) == 2
    assert len(list((data_dir / "contracts").glob("*.json"))) == 2
