"""What containers read is what was rendered: variables, own profiles, own models; or it is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

MINE = 'description = "x"\nextends = ["vllm-cpu-eagle", "layers/own"]\n[drafter]\nmodel = "./my drafter"\n'
LAYER = '[execution]\nthreads = 3\n[env]\nVLLM_LOGGING_LEVEL = "DEBUG"\n'

Draftgate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def draftgate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Draftgate:
    """The command, run where own profiles lie, with the environment as the test leaves it."""
    (tmp_path / "own" / "layers").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "own")

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "draftgate", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )

    return run


def write(own: Path) -> None:
    """A profile with a layer and a drafter of its own."""
    (own / "mine.toml").write_text(MINE)
    (own / "layers" / "own.toml").write_text(LAYER)
    (own / "my drafter").mkdir()
    (own / "my drafter" / "config.json").write_text("{}")


def service(done: subprocess.CompletedProcess[str], name: str) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"][name]
    return found


def read_inside(draftgate: Draftgate, one: dict[str, Any], name: str, root: Path) -> list[str]:
    """The engine's words as a container reads them, its mounts lying below ``root``."""
    root.mkdir()
    for mount in (mount for mount in one["volumes"] if isinstance(mount, dict)):
        target = root / mount["target"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if Path(mount["source"]).is_dir() else shutil.copy
        copy(mount["source"], target)
    words = [word.replace("$$", "$") for word in one["command"][one["command"].index("--set") :]]
    environment = {name: value.replace("$$", "$") for name, value in one["environment"].items()}
    environment["DRAFTGATE_PROFILE_PATH"] = f"{root}{environment.get('DRAFTGATE_PROFILE_PATH', '')}"
    done = draftgate("render", name, "--format", "argv", *words, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_variables_reach_engine_and_sidecar(
    draftgate: Draftgate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "DRAFTGATE_SET__target__served_name": "its $name ",
        "DRAFTGATE_SET__engine_flags__enable_prefix_caching": "false",
        "DRAFTGATE_SET__server__host": "127.0.0.1",
        "DRAFTGATE_SET__env__VLLM_LOGGING_LEVEL": "INFO",
    }
    sets = ["--set", "memory.max_running_requests=3", "--set", "server.host = 192.0.2.1"]
    outside = draftgate("render", "vllm-cpu", "--format", "argv", *sets, **said).stdout.splitlines()
    assert "its $name" in outside
    done = draftgate("render", "vllm-cpu", "--format", "compose", *sets, **said)
    inside = read_inside(draftgate, service(done, "vllm-cpu"), "vllm-cpu", tmp_path / "root")
    assert inside == [word.replace("192.0.2.1", "0.0.0.0") for word in outside]
    for name in ("vllm-cpu", "sidecar"):
        one = service(done, name)
        assert one["environment"]["DRAFTGATE_SET__target__served_name"] == "its $$name "
        # Last, and so over what the user says: elsewhere nobody could reach it.
        assert one["command"][-2:] == ["--set", "server.host=0.0.0.0"]


@pytest.mark.parametrize("given", ["mine", "mine.toml", "./mine.toml"])
def test_an_own_profile_with_its_layer_and_its_drafter(
    draftgate: Draftgate, tmp_path: Path, given: str
) -> None:
    own = tmp_path / "own"
    write(own)
    path = {"DRAFTGATE_PROFILE_PATH": str(own)}
    done = draftgate("render", given, "--format", "compose", **path)
    one = service(done, "mine")
    assert one["command"][0] == "mine"
    outside = draftgate("render", given, "--format", "argv", **path).stdout
    inside = read_inside(draftgate, one, "mine", tmp_path / "root")
    moved = outside.replace(f"{own}/my drafter", "/own/drafter/my drafter").replace("127.0.0.1", "0.0.0.0")
    assert "/own/drafter/my drafter" in moved
    assert inside == moved.splitlines()
    mounted = {mount["target"]: mount for mount in one["volumes"] if isinstance(mount, dict)}
    assert set(mounted) == {"/profiles/mine.toml", "/profiles/layers/own.toml", "/own/drafter/my drafter"}
    assert all(mount["read_only"] and not mount["bind"]["create_host_path"] for mount in mounted.values())
    # The sidecar finds it by the name that stands in the lock.
    sidecar = [mount["target"] for mount in service(done, "sidecar")["volumes"] if isinstance(mount, dict)]
    assert sidecar == ["/profiles/layers/own.toml", "/profiles/mine.toml"]


def test_profiles_that_come_along_need_nothing_mounted(draftgate: Draftgate, tmp_path: Path) -> None:
    done = draftgate("render", "vllm-cpu-eagle", "--format", "compose")
    assert not [mount for mount in service(done, "vllm-cpu-eagle")["volumes"] if isinstance(mount, dict)]


def test_a_folder_of_a_hugging_face_cache_is_mounted_with_what_its_links_lead_to(
    draftgate: Draftgate, tmp_path: Path
) -> None:
    cache = tmp_path / "models--a--b"
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / "1").write_text("{}")
    (cache / "snapshots" / "rev").mkdir(parents=True)
    (cache / "snapshots" / "rev" / "config.json").symlink_to("../../blobs/1")
    told = f"target.model={cache}/snapshots/rev"
    done = draftgate("render", "vllm-cpu", "--format", "compose", "--set", told)
    one = service(done, "vllm-cpu")
    assert one["volumes"][-1]["source"] == str(cache)
    assert "target.model=/own/target/models--a--b/snapshots/rev" in one["command"]


def test_on_gpus_the_hosts_folder_of_models_is_there_already(draftgate: Draftgate) -> None:
    done = draftgate("render", "sglang-eagle", "--format", "compose", "--set", "drafter.model=/models/mine")
    targets = [
        mount["target"] for mount in service(done, "sglang-eagle")["volumes"] if isinstance(mount, dict)
    ]
    assert targets == ["/models"]
    done = draftgate("render", "sglang-eagle", "--format", "compose", "--set", "drafter.model=/data/mine")
    targets = [
        mount["target"] for mount in service(done, "sglang-eagle")["volumes"] if isinstance(mount, dict)
    ]
    assert targets == ["/own/drafter/mine", "/models"]


def _by_path(own: Path) -> None:
    (own / "mine.toml").write_text(f'description = "x"\nextends = ["vllm-cpu", "{own}/layers/own.toml"]\n')


def _same_name(own: Path) -> None:
    (own / "vllm-cpu.toml").write_text('extends = ["vllm-cpu"]\n')


def _closed_profile(own: Path) -> None:
    (own / "layers" / "own.toml").chmod(0o600)


def _closed_model(own: Path) -> None:
    (own / "my drafter" / "config.json").chmod(0o600)


def _closed_key(own: Path) -> None:
    (own / "key").touch(mode=0o600)
    (own / "mine.toml").write_text(f'{MINE}[server]\napi_key_file = "key"\n')


def _link(own: Path) -> None:
    (own / "weights").touch()
    (own / "my drafter" / "model.safetensors").symlink_to(own / "weights")


def _name(own: Path) -> None:
    (own / "mine.toml").rename(own / "my own.toml")


def _box(own: Path) -> None:
    (own / "mine.toml").rename(own / "box.toml")


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        (_by_path, "mine", "extends: containers find layers by name alone: put {own}/layers/own.toml into"),
        (_same_name, "{own}/vllm-cpu.toml", "call this file otherwise"),
        (_closed_profile, "mine", "may not read {own}/layers/own.toml: chmod o+r it"),
        (_closed_model, "mine", "may not read {own}/my drafter/config.json: chmod -R o+rX it"),
        (_closed_key, "mine", "may not read {own}/key: chown 10001 it"),
        (_link, "mine", "leads out of it, to {own}/weights, which containers do not see"),
        (_name, "my own", "a service cannot be called 'my own'"),
        (_box, "box", "a service cannot be called 'box'"),
    ],
)
def test_what_containers_could_not_see_is_refused(
    draftgate: Draftgate, tmp_path: Path, change: Callable[[Path], None], given: str, said: str
) -> None:
    own = tmp_path / "own"
    write(own)
    change(own)
    path = {} if "{own}" in given else {"DRAFTGATE_PROFILE_PATH": str(own)}
    done = draftgate("render", given.format(own=own), "--format", "compose", **path)
    assert (done.returncode, done.stdout) == (3, "")
    assert said.format(own=own) in done.stderr
    assert "\n  next:  " in done.stderr
