"""The typed profile: one way to serve one model, whole and frozen.

Every key says in ``description`` what it means and in which unit; docs/reference/profile.md is made from it.
``None`` means "the engine decides".
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

NonEmpty = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
# What every shell and system can set.
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# As in a URL, without the brackets of IPv6.
Host = Annotated[str, StringConstraints(pattern=r"^[^\s/\[\]]+$", strip_whitespace=True)]
FlagValue = bool | int | float | str | tuple[bool | int | float | str, ...]


class EngineName(enum.StrEnum):
    VLLM = "vllm"
    SGLANG = "sglang"


class Line(enum.StrEnum):
    """The line of pins: which engine versions belong together on one kind of machine."""

    CPU = "cpu"
    CUDA12 = "cuda12"
    TORCH211 = "torch211"
    CUDA13 = "cuda13"
    CUSTOM = "custom"


def _lists_to_tuples(value: object) -> object:
    if isinstance(value, dict):
        return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
    return value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Engine(_Section):
    name: EngineName = Field(strict=False, description="The engine: vllm or sglang.")
    line: Line = Field(
        strict=False, description="The line of pins that chooses its version; custom: a build of your own."
    )
    source: Path | None = Field(
        None,
        strict=False,
        description="With line custom: the interpreter of its environment, or a wheel (not to be launched).",
    )


class Target(_Section):
    model: NonEmpty = Field(
        description="A folder (begins with /, ./, ../ or ~; relative to its file) or a Hugging Face id."
    )
    revision: NonEmpty | None = Field(None, description="Commit or tag of a Hugging Face model.")
    served_name: NonEmpty = Field(
        description="The name that requests use; the same for all arms of one model."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of the weights."
    )
    max_model_len: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Longest sequence, prompt and output together, in tokens."
    )
    quantization: NonEmpty | None = Field(
        None, description="Quantization, when the engine cannot read it from the model's config.json."
    )
    trust_remote_code: bool = Field(False, description="Run Python code that comes with the model.")
    reasoning_parser: NonEmpty | None = Field(None, description="The engine's parser for reasoning text.")
    tool_call_parser: NonEmpty | None = Field(None, description="The engine's parser for tool calls.")


class Parallelism(_Section):
    # Ranks share out a model's attention heads; no model that these engines serve has more than 128.
    tensor: Annotated[int, Field(gt=0, le=128)] = Field(
        1, description="Tensor-parallel ranks, one GPU each; a divisor of the model's attention heads."
    )


class Box(_Section):
    """The machine: what the rules for its kind of GPU go by."""

    compute_capability: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Of its GPUs, such as 12.0 for SM120."
    )
    gpu_ids: tuple[NonEmpty, ...] | None = Field(
        None,
        strict=False,
        description="GPUs for the container, by index or UUID; unset: as many as there are ranks.",
    )


class Container(_Section):
    """Limits of the engine's container, and to be granted where it runs without one."""

    shared_memory_bytes: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Size of /dev/shm, which ranks talk through; Docker's default is 64 MiB."
    )
    locked_memory: bool = Field(
        False, description="No limit on locked memory, which NCCL and pinned buffers need."
    )
    stack_bytes: Annotated[int, Field(gt=0)] | None = Field(None, description="Size of a thread's stack.")


class Memory(_Section):
    gpu_fraction: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Share of a GPU's memory; the two engines mean different shares by it."
    )
    kv_cache_bytes: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Size of the KV cache, in bytes (on a CPU whole GiB)."
    )
    max_running_requests: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Requests decoded together, at most."
    )
    max_batched_tokens: Annotated[int, Field(gt=0)] | None = Field(
        None, description="Tokens in one prefill step, at most."
    )


class Execution(_Section):
    eager: bool = Field(False, description="No compilation and no CUDA graphs.")
    graph_max_requests: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="Largest batch, in requests, that CUDA graphs are captured for; unset, the engine's own "
        "flag may be stated, which vLLM counts in tokens.",
    )
    threads: Annotated[int, Field(gt=0)] | None = Field(None, description="OpenMP threads of a rank.")


class Server(_Section):
    host: Host = Field("127.0.0.1", description="Address to bind; loopback unless told otherwise.")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(8000, description="Port of the engine's HTTP server.")
    api_key_file: Path | None = Field(
        None,
        strict=False,
        description="File with the API key, one line; keys are never written in a profile.",
    )


class Speculation(_Section):
    method: Literal["eagle3"] = Field("eagle3", description="How tokens are proposed.")
    num_speculative_tokens: Annotated[int, Field(gt=0, le=64)] = Field(
        description="K, the draft tokens proposed per verify step."
    )
    topk: Annotated[int, Field(gt=0)] = Field(
        1, description="Branches per step; 1 is a chain, more is a tree."
    )
    depth: Annotated[int, Field(gt=0)] | None = Field(
        None,
        description="Of a tree: draft steps, each of topk branches; K is then the nodes that are verified.",
    )
    expected_acceptance_length: Annotated[float, Field(gt=1)] | None = Field(
        None,
        description="What a drafter that works reaches at this K, to be alerted below; unset: as published.",
    )
    engine_keys: dict[str, FlagValue] = Field(
        default_factory=dict,
        description="Keys of vLLM's --speculative-config that no other key covers, such as "
        "attention_backend (the drafter's own), merged by key.",
    )

    _tuples = field_validator("engine_keys", mode="before")(_lists_to_tuples)


class Drafter(_Section):
    model: NonEmpty = Field(
        description="The EAGLE-3 drafter: a folder or a Hugging Face id, as target.model."
    )
    revision: NonEmpty | None = Field(None, description="Commit or tag of a Hugging Face model.")
    architecture: NonEmpty | None = Field(
        None, description="Its class, as in its config.json; unset: not known before the launch."
    )
    aux_layers: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None,
        strict=False,
        description="Target layers whose inputs feed the drafter; unset: as its own config.json says.",
    )
    trained_with: NonEmpty | None = Field(
        None, description="What trained it, and with which layer convention."
    )


class Launch(_Section):
    start_timeout_seconds: Annotated[float, Field(gt=0)] = Field(
        600.0, description="From start to the first answered request, at most."
    )
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        30.0, description="Time that running requests get to end after SIGTERM."
    )


class Sidecar(_Section):
    host: Host = Field("127.0.0.1", description="Address to bind; loopback unless told otherwise.")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        9310, description="Port of /metrics, /livez and /readyz."
    )


class Profile(_Section):
    """One way to serve one model."""

    name: NonEmpty
    description: NonEmpty = Field(description="One sentence for `draftgate profiles`.")
    engine: Engine
    target: Target
    parallelism: Parallelism = Parallelism()
    box: Box = Box()
    container: Container = Container()
    memory: Memory = Memory()
    execution: Execution = Execution()
    server: Server = Server()
    speculation: Speculation | None = None
    drafter: Drafter | None = None
    launch: Launch = Launch()
    sidecar: Sidecar = Sidecar()
    env: dict[VariableName, str] = Field(
        default_factory=dict, description="Environment of the engine, merged by key over the layers."
    )
    engine_flags: dict[str, FlagValue] = Field(
        default_factory=dict,
        description="Flags of the engine that no other key covers, without the dashes, merged by key.",
    )

    _tuples = field_validator("engine_flags", mode="before")(_lists_to_tuples)
