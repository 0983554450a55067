"""Profiles → compose.yaml: one service each, around a sandbox that owns the network address. Pure.

The service ``box`` owns address, alias and published ports; engines join its network and publish nothing. So
the address is one, and a second profile waits for the GPU lock, named, where with a port of its own it would
fail before its entry point runs. What varies by site is a variable of Compose, with a default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from draftgate import __version__
from draftgate.engine.contract import Contract
from draftgate.errors import Fault, ProfileError
from draftgate.profile.model import Line
from draftgate.render.service import ALL, LOCK, MODELS, USER, Service, Statements, literal, read_only
from draftgate.render.yaml import Value, as_yaml

_HEAD = "# Rendered by `draftgate render --format compose`; a test holds it equal. Change profiles/ instead."
_T = TypeVar("_T")
_BIND = "${DRAFTGATE_BIND:-127.0.0.1}"
_TMP = "/tmp"  # noqa: S108
# A second engine may wait as long as it takes; the launcher says whom it waits for.
WAIT_SECONDS = 7 * 24 * 3600
_STATE = "/state:uid=10001,gid=10001,mode=0700"
# Ours are built or loaded: Compose would first ask the public registry, where these names may be anybody's.
_PULL = "${DRAFTGATE_PULL:-never}"
_CACHE = "/cache"
# Working folders of engines, where SGLang tells of each request, which the sidecar reads. In memory, so that
# nothing of it stays once both are gone.
_WORK = "work:/state/work"
_WORK_VOLUME: dict[str, Value] = {
    "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": f"uid={USER},gid={USER},mode=0700,size=1g"}
}
# What compilers that engines use would write; XDG_CACHE_HOME, and HOME in the image, catch the rest. It all
# lies on one volume for each image and profile: what another version compiled would be taken for its own.
_COMPILERS = ("CUDA_CACHE_PATH", "HF_MODULES_CACHE", "TORCH_EXTENSIONS_DIR", "TVM_FFI_CACHE_DIR")
# Compose's own rule for the name of a service and of its profile.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")
_CACHE_NAME = re.compile(r"(CACHE_(DIR|ROOT|PATH)|WORKSPACE_BASE)$")
# No cache: where a plug-in looks for adapters, which it does as soon as this is set.
_NO_CACHE = "VLLM_LORA_RESOLVER_CACHE_DIR"


def as_compose(services: Sequence[Service], torch_index: str) -> str:
    """The whole file.

    Args:
        torch_index: where torch's CPU builds are, for images that are built.

    Raises:
        ProfileError: the profiles differ in what is one behind one address, or cannot be called so.
    """
    port = _shared("server.port", {one.profile.server.port for one in services})
    sidecar_port = _shared("sidecar.port", {one.profile.sidecar.port for one in services})
    keys = {one.profile.server.api_key_file for one in services} - {None}
    if keys:
        _shared("server.api_key_file", keys)
    around = {
        "box": _box(port, sidecar_port),
        "sidecar": _sidecar(sidecar_port, [one.statements for one in services], with_key=bool(keys)),
        "prometheus": _prometheus(),
        "grafana": _grafana(),
        "gpu-metrics": _gpu_metrics(),
    }
    for name in (one.profile.name for one in services):
        if name in around or not _NAME.fullmatch(name):
            what = f"a service cannot be called {name!r}: call the profile's file otherwise"
            raise ProfileError(name, (Fault("name", f"{name}.toml", what),))
    document: dict[str, Value] = {
        "name": "draftgate",
        "services": {**around, **{one.profile.name: _engine(one, torch_index) for one in services}},
        "volumes": {
            "work": _WORK_VOLUME,
            **{name: {} for name in ("prometheus", "grafana", *map(_cache_of, services))},
        },
        "secrets": {
            # Empty: no extra CA. Read while images are built, and in no layer.
            "extra_ca": {"file": "${DRAFTGATE_EXTRA_CA:-./docker/no-extra-ca}"},
            **({"api_key": {"file": literal(str(next(iter(keys))))}} if keys else {}),
        },
    }
    return f"{_HEAD}\n{as_yaml(document)}"


def _shared(key: str, values: set[_T]) -> _T:
    """The one value of all profiles."""
    if len(values) > 1:
        told = ", ".join(sorted(map(str, values)))
        what = f"must be one for all profiles behind one address, and is {told}: render one, or --set it"
        raise ProfileError("compose.yaml", (Fault(key, "profiles", what),))
    return next(iter(values))


def _hardened() -> dict[str, Value]:
    """What every container of ours gets."""
    return {
        "init": True,
        "user": f"{USER}:{USER}",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}},
    }


def _build(target: str, **arguments: str) -> dict[str, Value]:
    return {
        "context": ".",
        "dockerfile": "docker/Dockerfile",
        "target": target,
        "args": {"BASE": "${DRAFTGATE_BASE:-python:3.11-slim-bookworm}", **arguments},
        "secrets": ["extra_ca"],
    }


def _draftgate() -> dict[str, Value]:
    return {"image": "${DRAFTGATE_IMAGE:-draftgate/draftgate}", "pull_policy": _PULL, **_hardened()}


def _box(engine: int, sidecar: int) -> dict[str, Value]:
    published = {"PORT": engine, "SIDECAR_PORT": sidecar}
    return {
        **_draftgate(),
        # Here alone, though the sidecar's is the same: Compose would make an image for each.
        "build": _build("draftgate", VERSION=__version__),
        "entrypoint": ["sleep", "infinity"],
        "restart": "unless-stopped",
        "stop_grace_period": "1s",
        "ports": [f"{_BIND}:${{DRAFTGATE_{name}:-{port}}}:{port}" for name, port in published.items()],
    }


def _sidecar(port: int, statements: Sequence[Statements], *, with_key: bool) -> dict[str, Value]:
    # The same variables and options for all; the files differ.
    files = tuple(dict.fromkeys(file for one in statements for file in one.files))
    every = replace(statements[0], files=files)
    service = {
        **_draftgate(),
        "network_mode": "service:box",
        "depends_on": ["box"],
        "restart": "unless-stopped",
        "command": ["sidecar", "--host", ALL, "--port", str(port), *every.options(key=with_key)],
        "environment": every.environment(),
        "volumes": [_lock(), _WORK, *(file.volume() for file in files)],
        "tmpfs": [_STATE],
    }
    if with_key:
        service["secrets"] = ["api_key"]
    return service


def _prometheus() -> dict[str, Value]:
    return {
        "image": "${DRAFTGATE_PROMETHEUS_IMAGE:-prom/prometheus:v3.5.0}",
        **_hardened(),
        "user": "${DRAFTGATE_PROMETHEUS_USER:-65534:65534}",
        "restart": "unless-stopped",
        "command": [
            "--config.file=/etc/draftgate/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            "--storage.tsdb.retention.time=30d",
        ],
        "volumes": ["./deploy/prometheus:/etc/draftgate:ro", "prometheus:/prometheus"],
        "ports": [f"{_BIND}:${{DRAFTGATE_PROMETHEUS_PORT:-9090}}:9090"],
    }


def _grafana() -> dict[str, Value]:
    return {
        "image": "${DRAFTGATE_GRAFANA_IMAGE:-grafana/grafana:12.1.0}",
        **_hardened(),
        "user": "${DRAFTGATE_GRAFANA_USER:-472:0}",
        "restart": "unless-stopped",
        # Whoever reaches it may look, and nobody may change: it is provisioned whole, and bound to loopback.
        "environment": {
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            "GF_AUTH_DISABLE_LOGIN_FORM": "true",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        },
        "volumes": [
            "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
            "./deploy/grafana/dashboards:/etc/grafana/dashboards:ro",
            "grafana:/var/lib/grafana",
        ],
        "tmpfs": [_TMP],
        "ports": [f"{_BIND}:${{DRAFTGATE_GRAFANA_PORT:-3000}}:3000"],
        "depends_on": ["prometheus"],
    }


def _gpu_metrics() -> dict[str, Value]:
    device = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    return {
        "profiles": ["gpu-metrics"],
        "image": "${DRAFTGATE_GPU_METRICS_IMAGE:-utkuozdemir/nvidia_gpu_exporter:1.14.0-nvml}",
        **_hardened(),
        "user": "65534:65534",
        "restart": "unless-stopped",
        "environment": {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        # Not exclusive: engines reserve the same ones.
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
    }


def _engine(one: Service, torch_index: str) -> dict[str, Value]:
    profile, pin = one.profile, one.pin
    variable = pin.id.upper().replace("-", "_")
    service: dict[str, Value] = {
        "profiles": [profile.name],
        "image": f"${{DRAFTGATE_{variable}_IMAGE:-draftgate/{pin.id}}}",
        "pull_policy": _PULL,
    }
    if pin.line is Line.CPU:
        service["build"] = _build(
            "engine",
            PIN=pin.id,
            VERSION=pin.version,
            TORCH=pin.torch,
            TORCH_INDEX=torch_index,
            OWN_PACKAGE=pin.own_package or "",
        )
    environment: dict[str, Value] = {
        # Nothing is mounted on /models without GPUs, and the root is read-only.
        "HF_HOME": f"{_CACHE if pin.line is Line.CPU else MODELS}/huggingface",
        "XDG_CACHE_HOME": _CACHE,
        **{name: f"{_CACHE}/{name.lower()}" for name in _caches(one.contract)},
        **one.statements.environment(),
    }
    own = (mount.volume() for mount in (*one.statements.files, *one.models))
    volumes: list[Value] = [_lock(), _WORK, f"{_cache_of(one)}:{_CACHE}", *own]
    if pin.line is not Line.CPU:
        volumes.append(read_only("${DRAFTGATE_MODELS:-/models}", MODELS))
    with_key = profile.server.api_key_file is not None
    options = one.statements.options(key=with_key, places=one.places)
    service |= {
        **_hardened(),
        "network_mode": "service:box",
        "depends_on": ["box"],
        "command": [profile.name, "--wait-lock", str(WAIT_SECONDS), *options],
        "environment": environment,
        "volumes": volumes,
        "tmpfs": [_STATE, f"{_TMP}:exec"],
        "restart": "${DRAFTGATE_RESTART:-no}",
        "stop_grace_period": f"{round(one.stop_seconds)}s",
        "healthcheck": {
            "test": ["CMD", "draftgate", "status", "--ready", "--json"],
            "interval": "10s",
            "timeout": "10s",
            "retries": 3,
            "start_period": f"{round(profile.launch.start_timeout_seconds)}s",
        },
    }
    if with_key:
        service["secrets"] = ["api_key"]
    limits = profile.container
    if limits.shared_memory_bytes is not None:
        service["shm_size"] = limits.shared_memory_bytes
    ulimits: dict[str, Value] = {"memlock": -1} if limits.locked_memory else {}
    if limits.stack_bytes is not None:
        ulimits["stack"] = limits.stack_bytes
    if ulimits:
        service["ulimits"] = ulimits
    if pin.line is not Line.CPU:
        ids = [literal(one) for one in profile.box.gpu_ids or ()]
        which: dict[str, Value] = {"device_ids": ids} if ids else {"count": profile.parallelism.tensor}
        device = {"driver": "nvidia", **which, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    return service


def _caches(contract: Contract) -> list[str]:
    """Every variable by which this engine can be told where to keep what it computed."""
    own = {name for name in contract.variables if _CACHE_NAME.search(name) and name != _NO_CACHE}
    return sorted(own.union(_COMPILERS))


def _lock() -> Value:
    # The host's own folder, so that native engines and those of other projects wait for the same lock.
    return f"${{DRAFTGATE_LOCK:-/run/lock}}:{LOCK}"


def _cache_of(one: Service) -> str:
    return f"cache-{one.profile.name}-{one.pin.version}"
