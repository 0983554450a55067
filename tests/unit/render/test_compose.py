"""compose.yaml: what is committed is what is rendered, and what the rendering promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from draftgate.engine.contract import load_contract
from draftgate.render.yaml import as_yaml
from tests.conftest import REPOSITORY

ALWAYS_ON = {"box", "sidecar", "prometheus", "grafana"}
OPTIONAL = {"gpu-metrics"}
# Images of others.
THEIRS = {"prometheus", "grafana", "gpu-metrics"}


def rendered(*words: str) -> str:
    command = [sys.executable, "-m", "draftgate", "render", "--format", "compose", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    found: dict[str, Any] = document["services"]
    return found


def test_the_committed_file_is_the_rendering() -> None:
    assert (REPOSITORY / "compose.yaml").read_text() == rendered()


def test_one_service_for_each_profile_under_its_own_name(services: dict[str, Any]) -> None:
    profiles = {path.stem for path in (REPOSITORY / "profiles").glob("*.toml")} | OPTIONAL
    assert {name for name, one in services.items() if one.get("profiles") == [name]} == profiles
    assert set(services) - profiles == ALWAYS_ON


def test_every_container_is_locked_down(services: dict[str, Any]) -> None:
    for name, one in services.items():
        assert one["read_only"], name
        assert one["cap_drop"] == ["ALL"], name
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert one["init"], name
        assert one["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, name
        assert "privileged" not in one, name
        assert "cap_add" not in one, name
        assert not one["user"].startswith(("0", "root")), name
        for port in one.get("ports", ()):
            assert port.startswith("${DRAFTGATE_BIND:-127.0.0.1}:"), name


def test_our_own_images_are_asked_of_no_registry(services: dict[str, Any]) -> None:
    """Not unless a site says so: there their names may be anybody's."""
    for name, one in services.items():
        ours = "draftgate/" in one["image"]
        assert ours is (name not in THEIRS)
        assert one.get("pull_policy") == ("${DRAFTGATE_PULL:-never}" if ours else None), name


def test_engines_share_the_address_and_publish_nothing(services: dict[str, Any]) -> None:
    for name, one in services.items():
        if name in ALWAYS_ON | OPTIONAL:
            continue
        assert one["network_mode"] == "service:box", name
        assert "ports" not in one, name
        assert one["command"][0] == name
        assert "${DRAFTGATE_LOCK:-/run/lock}:/run/lock" in one["volumes"], name


def test_engines_share_their_working_folders_with_the_sidecar_alone(services: dict[str, Any]) -> None:
    """In memory, and for their own user: an API key's file lies there too."""
    volumes = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())["volumes"]
    assert volumes["work"]["driver_opts"]["type"] == "tmpfs"
    assert volumes["work"]["driver_opts"]["o"] == "uid=10001,gid=10001,mode=0700,size=1g"
    sharing = {name for name, one in services.items() if "work:/state/work" in one.get("volumes", ())}
    assert sharing == set(services) - THEIRS - {"box"}


def test_the_grace_outlasts_the_drain(services: dict[str, Any]) -> None:
    from draftgate.cli.load import load

    for name, one in services.items():
        if name not in ALWAYS_ON | OPTIONAL:
            drain = load(name).profile.launch.drain_seconds
            assert int(one["stop_grace_period"].removesuffix("s")) > drain, name


def test_gpu_profiles_reserve_gpus_and_raise_limits(services: dict[str, Any]) -> None:
    (device,) = services["gpu-metrics"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    (device,) = services["vllm-eagle"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}
    assert services["vllm-eagle"]["ulimits"] == {"memlock": -1, "stack": 67108864}
    assert services["vllm-eagle"]["shm_size"] == 32 * 2**30
    assert "deploy" not in services["vllm-cpu"]
    assert services["vllm-eagle"]["environment"]["HF_HOME"] == "/models/huggingface"
    assert services["vllm-cpu"]["environment"]["HF_HOME"] == "/cache/huggingface"
    assert "ulimits" not in services["vllm-cpu"]
    one = yaml.safe_load(
        rendered("sglang", "--set", 'box.gpu_ids=["0","GPU-5"]', "--set", "parallelism.tensor=2")
    )
    (device,) = one["services"]["sglang"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["0", "GPU-5"], "capabilities": ["gpu"]}


def test_a_key_goes_by_a_secret_file_to_engine_and_sidecar() -> None:
    document = yaml.safe_load(rendered("sglang-cpu", "--set", "server.api_key_file=/keys/it"))
    assert document["secrets"]["api_key"] == {"file": "/keys/it"}
    for name in ("sglang-cpu", "sidecar"):
        one = document["services"][name]
        assert one["secrets"] == ["api_key"], name
        assert "server.api_key_file=/run/secrets/api_key" in one["command"][-4:], name
    # To Compose a dollar begins a variable.
    odd = yaml.safe_load(rendered("sglang-cpu", "--set", "server.api_key_file=/keys/$it"))
    assert odd["secrets"]["api_key"] == {"file": "/keys/$$it"}
    assert "api_key" not in yaml.safe_load(rendered())["secrets"]


def test_profiles_that_differ_in_the_address_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('description = "x"\nextends = ["vllm-cpu"]\n[server]\nport = 8001\n')
    done = subprocess.run(
        [sys.executable, "-m", "draftgate", "render", "--format", "compose"],
        capture_output=True,
        text=True,
        env={**os.environ, "DRAFTGATE_PROFILE_PATH": str(tmp_path)},
    )
    assert done.returncode == 3
    assert "server.port: must be one for all profiles behind one address, and is 8000, 8001" in done.stderr


@pytest.mark.parametrize("pin", ["vllm-cpu", "sglang-cpu"])
def test_every_cache_that_an_engine_can_be_told_to_move_is_on_the_volume(
    services: dict[str, Any], pin: str
) -> None:
    """What is written elsewhere would fail on the read-only root, or be lost."""
    one = services[pin]
    known = {name for name in load_contract(pin).variables if "CACHE_DIR" in name or "CACHE_ROOT" in name}
    assert known - set(one["environment"]) <= {"VLLM_LORA_RESOLVER_CACHE_DIR"}
    assert {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "HF_MODULES_CACHE"} <= set(one["environment"])
    caches = {name: value for name, value in one["environment"].items() if "CACHE" in name}
    assert all(value.startswith("/cache") for value in caches.values())
    assert f"cache-{pin}-{load_contract(pin).version}:/cache" in one["volumes"]


TEXT = st.text() | st.sampled_from(("\x7f", "\x85", "a\u2028b", "\ufeff", "\ufffe", "on", "1", ".0", ".inf"))
PLAIN = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, PLAIN, min_size=1))
def test_yaml_reads_back_what_was_written(value: dict[str, Any]) -> None:
    assert yaml.safe_load(as_yaml(value)) == value
