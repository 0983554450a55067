"""vLLM: profile → command. Flags as in the pinned package's own parser (``--help=all``)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from draftgate.engine.command import Argument, EngineCommand, Variable
from draftgate.engine.pins import Pin
from draftgate.profile.model import FlagValue, Line, Profile

_GIB = 2**30

# Flag, the key that it carries, and the reason where the key does not tell. True stands alone, False and
# None are left out.
_FLAGS: tuple[tuple[str, str, str | None], ...] = (
    ("model", "target.model", None),
    ("revision", "target.revision", None),
    ("served-model-name", "target.served_name", None),
    ("host", "server.host", None),
    ("port", "server.port", None),
    ("dtype", "target.dtype", None),
    ("max-model-len", "target.max_model_len", None),
    ("quantization", "target.quantization", None),
    ("trust-remote-code", "target.trust_remote_code", None),
    ("reasoning-parser", "target.reasoning_parser", None),
    ("tool-call-parser", "target.tool_call_parser", None),
    ("tensor-parallel-size", "parallelism.tensor", None),
    ("gpu-memory-utilization", "memory.gpu_fraction", None),
    ("kv-cache-memory-bytes", "memory.kv_cache_bytes", None),
    ("max-num-seqs", "memory.max_running_requests", None),
    ("max-num-batched-tokens", "memory.max_batched_tokens", None),
    ("enforce-eager", "execution.eager", None),
)

# Every flag that the tool states itself, and the key of the profile that each belongs to.
DERIVED: dict[str, str] = {flag: path for flag, path, _ in _FLAGS} | {
    "api-key": "server.api_key_file",
    "enable-auto-tool-choice": "target.tool_call_parser",
    "shutdown-timeout": "launch.drain_seconds",
    "speculative-config": "speculation",
    "spec-method": "speculation.method",
    "spec-model": "drafter.model",
    "spec-tokens": "speculation.num_speculative_tokens",
}


def command(profile: Profile, pin: Pin) -> EngineCommand:
    """The command that serves ``profile`` with vLLM at ``pin``."""
    return EngineCommand(
        pin=pin,
        arguments=tuple(_arguments(profile)),
        variables=tuple(_variables(profile)),
        # Files of an earlier run in an inherited folder would be merged into this run's metrics.
        stripped=("PROMETHEUS_MULTIPROC_DIR",),
        api_key_variable="VLLM_API_KEY",
        api_key_file=profile.server.api_key_file,
        base_url=f"http://{_reachable(profile.server.host)}:{profile.server.port}",
        drain_seconds=profile.launch.drain_seconds,
    )


def _arguments(profile: Profile) -> Iterator[Argument]:
    for flag, path, reason in _FLAGS:
        if flag == "kv-cache-memory-bytes" and profile.engine.line is Line.CPU:
            continue  # a variable there, see _variables
        value = _value(profile, path)
        if value is not None and value is not False:
            yield Argument(f"--{flag}", None if value is True else str(value), path, reason)
    if profile.target.tool_call_parser:
        reason = "vLLM parses tool calls only with it"
        yield Argument("--enable-auto-tool-choice", None, "target.tool_call_parser", reason)
    yield Argument(
        "--shutdown-timeout",
        str(max(1, round(profile.launch.drain_seconds))),
        "launch.drain_seconds",
        "at 0 vLLM kills its engine core at once on SIGTERM and the API process can hang",
    )
    if profile.speculation is not None and profile.drafter is not None:
        config: dict[str, object] = {
            # Without a method vLLM guesses it from the drafter's path.
            "method": profile.speculation.method,
            "model": profile.drafter.model,
            "num_speculative_tokens": profile.speculation.num_speculative_tokens,
        }
        if profile.drafter.revision:
            config["revision"] = profile.drafter.revision
        yield Argument("--speculative-config", json.dumps(config), "speculation")
    for name, flag_value in profile.engine_flags.items():
        yield from _own_flag(name, flag_value)


def _value(profile: Profile, path: str) -> object:
    section, key = path.split(".")
    return getattr(getattr(profile, section), key)


def _own_flag(name: str, value: FlagValue) -> Iterator[Argument]:
    source = f"engine_flags.{name}"
    if isinstance(value, bool):
        yield Argument(f"--{name}" if value else f"--no-{name}", None, source)
    elif isinstance(value, tuple):
        first, *rest = value or ("",)
        yield Argument(f"--{name}", str(first), source)
        yield from (Argument(str(item), None, source) for item in rest)
    else:
        yield Argument(f"--{name}", str(value), source)


def _variables(profile: Profile) -> Iterator[Variable]:
    yield Variable("PYTHONUNBUFFERED", "1", "draftgate", "so that the log arrives line by line")
    if profile.engine.line is Line.CPU and profile.memory.kv_cache_bytes is not None:
        gib = profile.memory.kv_cache_bytes // _GIB
        yield Variable("VLLM_CPU_KVCACHE_SPACE", str(gib), "memory.kv_cache_bytes", "in GiB")
    if profile.execution.threads is not None:
        yield Variable("OMP_NUM_THREADS", str(profile.execution.threads), "execution.threads")
    for name, value in profile.env.items():
        yield Variable(name, value, f"env.{name}")


def _reachable(host: str) -> str:
    """An address that a client on this machine can use for a bound ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
