"""vLLM: profile → command. Flags as in the pinned package's own parser (``--help=all``)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from draftgate.engine.command import Argument, Variable
from draftgate.engine.words import FlagTable, own_flags, stated
from draftgate.profile.model import Profile

_GIB = 2**30

_FLAGS: FlagTable = (
    ("model", "target.model"),
    ("revision", "target.revision"),
    ("served-model-name", "target.served_name"),
    ("host", "server.host"),
    ("port", "server.port"),
    ("dtype", "target.dtype"),
    ("max-model-len", "target.max_model_len"),
    ("quantization", "target.quantization"),
    ("trust-remote-code", "target.trust_remote_code"),
    ("reasoning-parser", "target.reasoning_parser"),
    ("tool-call-parser", "target.tool_call_parser"),
    ("tensor-parallel-size", "parallelism.tensor"),
    ("gpu-memory-utilization", "memory.gpu_fraction"),
    ("kv-cache-memory-bytes", "memory.kv_cache_bytes"),
    ("max-num-seqs", "memory.max_running_requests"),
    ("max-num-batched-tokens", "memory.max_batched_tokens"),
    ("enforce-eager", "execution.eager"),
)

# Every flag that the tool states itself, and the key of the profile that each belongs to.
DERIVED: dict[str, str] = dict(_FLAGS) | {
    "api-key": "server.api_key_file",
    "config": "the profile: put what it says there",
    "enable-auto-tool-choice": "target.tool_call_parser",
    "shutdown-timeout": "launch.drain_seconds",
    "speculative-config": "speculation (what it does not know: speculation.engine_keys)",
    "max-cudagraph-capture-size": "execution.graph_max_requests",
    "spec-method": "speculation.method",
    "spec-model": "drafter.model",
    "spec-tokens": "speculation.num_speculative_tokens",
}

# Keys of --speculative-config that the tool states itself.
DERIVED_KEYS: dict[str, str] = {
    "method": "speculation.method",
    "model": "drafter.model",
    "num_speculative_tokens": "speculation.num_speculative_tokens",
    "revision": "drafter.revision",
}


def arguments(profile: Profile, *, cpu: bool) -> Iterator[Argument]:
    """The flags that serve ``profile``."""
    # On a CPU the size of the KV cache is a variable, see `variables`.
    left_out = "kv-cache-memory-bytes" if cpu else None
    yield from stated(profile, [row for row in _FLAGS if row[0] != left_out])
    if profile.target.tool_call_parser:
        reason = "vLLM parses tool calls only with it"
        yield Argument("--enable-auto-tool-choice", None, "target.tool_call_parser", reason)
    graphs = profile.execution.graph_max_requests
    if graphs is not None:
        steps = 1 + (profile.speculation.num_speculative_tokens if profile.speculation else 0)
        reason = "vLLM counts tokens: requests times tokens per step"
        path = "execution.graph_max_requests"
        yield Argument("--max-cudagraph-capture-size", str(graphs * steps), path, reason)
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
        config |= profile.speculation.engine_keys
        yield Argument("--speculative-config", json.dumps(config), "speculation")
    yield from own_flags(profile)


def variables(profile: Profile, *, cpu: bool) -> Iterator[Variable]:
    """What vLLM takes from its environment alone."""
    if cpu and profile.memory.kv_cache_bytes is not None:
        gib = profile.memory.kv_cache_bytes // _GIB
        yield Variable("VLLM_CPU_KVCACHE_SPACE", str(gib), "memory.kv_cache_bytes", "in GiB")
