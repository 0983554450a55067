"""What the proof on a GPU stands on and can be tried without one."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from draftgate.cli.load import load
from tests.gpu import arms
from tests.gpu.environment import unpack
from tests.gpu.wrong import collect

PROFILES = Path(arms.__file__).with_name("profiles")


@pytest.fixture
def own_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTGATE_PROFILE_PATH", str(PROFILES))


def test_an_archive_in_parts_is_unpacked_once(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as archive:
        member = tarfile.TarInfo("package/__init__.py")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"a=1"))
    parts, into = tmp_path / "parts", tmp_path / "into"
    parts.mkdir()
    into.mkdir()
    whole = content.getvalue()
    for number, begin in enumerate(range(0, len(whole), 50)):
        (parts / f"p.tar.xz.{number:02}").write_bytes(whole[begin : begin + 50])
    unpack(parts, into)
    assert (into / "package/__init__.py").read_bytes() == b"a=1"
    (into / "package/__init__.py").write_bytes(b"a=2")
    unpack(parts, into)
    assert (into / "package/__init__.py").read_bytes() == b"a=2"


@pytest.mark.parametrize("pair", arms.PAIRS)
def test_every_pair_is_known_to_its_pin(own_profiles: None, pair: str, tmp_path: Path) -> None:
    wanted = arms.PAIRS[pair]
    plain = arms.make_arm(f"kimi-small-{wanted.engine}", wanted.sets, tmp_path)
    with_drafter = arms.make_arm(
        f"kimi-small-{wanted.engine}-eagle", (*wanted.sets, *wanted.drafter_sets), tmp_path
    )
    assert plain.command.pin.line == with_drafter.command.pin.line == "torch211"
    assert plain.profile.target == with_drafter.profile.target
    assert plain.profile.speculation is None
    assert with_drafter.profile.speculation is not None


def test_the_box_s_paths_are_forced(own_profiles: None) -> None:
    flags = {name: load(f"kimi-small-{name}").profile.engine_flags for name in ("vllm", "sglang")}
    assert flags["vllm"]["attention-backend"] == "TRITON_MLA"
    assert flags["sglang"]["attention-backend"] == "triton"


def test_a_record_is_written_also_where_a_step_fails(tmp_path: Path) -> None:
    record = arms.Record(tmp_path / "pair.json")
    with record.step("start"):
        raise ValueError("no such engine")
    assert "no such engine" in record.errors["start"]
    assert "no such engine" in record.file.read_text()


def test_answers_are_compared_with_the_good_drafter_s(tmp_path: Path) -> None:
    for name, answers in (("good", '["a", "b"]'), ("no-d2t", '["a", "c"]')):
        (tmp_path / f"wrong-vllm-{name}.json").write_text(f'{{"entry": {{}}, "answers": {answers}}}')
    assert collect("vllm", tmp_path) == {"good": {"equal_answers": 2}, "no-d2t": {"equal_answers": 1}}


def test_what_a_log_does_not_say_is_not_proved() -> None:
    # As vLLM 0.26.0 writes them; it chose MARLIN where this was seen.
    log = "INFO Using AttentionBackendEnum.TRITON_MLA backend.\nUsing 'TRITON' WNA16 MoE backend.\n"
    assert arms.proofs(log, arms.PAIRS["vllm"].expected) == {
        "latent attention in Triton": "Using AttentionBackendEnum.TRITON_MLA",
        "experts in Marlin": None,
    }
