"""SGLang: profile → command. Flags as in the pinned package's own ``ServerArgs``."""

from __future__ import annotations

from collections.abc import Iterator

from draftgate.engine.command import Argument
from draftgate.engine.contract import Contract
from draftgate.engine.words import FlagTable, own_flags, stated
from draftgate.profile.model import Profile

_FLAGS: FlagTable = (
    ("model-path", "target.model"),
    ("revision", "target.revision"),
    ("served-model-name", "target.served_name"),
    ("host", "server.host"),
    ("port", "server.port"),
    ("dtype", "target.dtype"),
    ("context-length", "target.max_model_len"),
    ("quantization", "target.quantization"),
    ("trust-remote-code", "target.trust_remote_code"),
    ("reasoning-parser", "target.reasoning_parser"),
    ("tool-call-parser", "target.tool_call_parser"),
    ("tp-size", "parallelism.tensor"),
    ("mem-fraction-static", "memory.gpu_fraction"),
    ("max-running-requests", "memory.max_running_requests"),
    ("chunked-prefill-size", "memory.max_batched_tokens"),
    ("disable-cuda-graph", "execution.eager"),
)

_SPECULATIVE: FlagTable = (
    ("speculative-draft-model-path", "drafter.model"),
    ("speculative-draft-model-revision", "drafter.revision"),
    ("speculative-eagle-topk", "speculation.topk"),
)

# Every flag that the tool states itself, and the key of the profile that each belongs to.
DERIVED: dict[str, str] = (
    dict(_FLAGS)
    | dict(_SPECULATIVE)
    | {
        "model": "target.model",
        "tensor-parallel-size": "parallelism.tensor",
        "api-key": "server.api_key_file",
        "cuda-graph-max-bs": "execution.graph_max_requests",
        "cuda-graph-max-bs-decode": "execution.graph_max_requests",
        "device": "engine.line",
        "enable-metrics": "the tool: the sidecar needs it",
        "config": "the profile: put what it says there",
        "speculative-algorithm": "speculation.method",
        "speculative-num-steps": "speculation.num_speculative_tokens",
        "speculative-draft-model": "drafter.model",
        "speculative-num-draft-tokens": "speculation.num_speculative_tokens",
    }
)


def arguments(profile: Profile, contract: Contract, *, cpu: bool) -> Iterator[Argument]:
    """The flags that serve ``profile`` at the version of ``contract``."""
    if cpu:
        yield Argument("--device", "cpu", "engine.line")
    yield from stated(profile, _FLAGS)
    graphs = profile.execution.graph_max_requests
    if graphs is not None:
        # Renamed when prefill got graphs too.
        new, old = "--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"
        flag = new if new in contract.flags else old
        yield Argument(flag, str(graphs), "execution.graph_max_requests")
    yield Argument("--enable-metrics", None, "draftgate", "off by default, and the sidecar needs it")
    if profile.speculation is not None and profile.drafter is not None:
        # Named for the head, not for the method: EAGLE with an EAGLE-3 head starts, and accepts nothing.
        yield Argument("--speculative-algorithm", "EAGLE3", "speculation.method")
        yield from stated(profile, _SPECULATIVE)
        tree = profile.speculation.depth is not None
        yield Argument(
            "--speculative-num-steps",
            str(profile.speculation.depth or profile.speculation.num_speculative_tokens),
            "speculation.depth" if tree else "speculation.num_speculative_tokens",
        )
        yield Argument(
            "--speculative-num-draft-tokens",
            str(profile.speculation.num_speculative_tokens + 1),
            "speculation.num_speculative_tokens",
            "SGLang counts the last token, which is verified too; all three numbers must be stated, or none",
        )
        if profile.target.quantization:
            reason = "the drafter is not quantised, and would inherit the target's quantisation"
            yield Argument("--speculative-draft-model-quantization", "unquant", "target.quantization", reason)
    yield from own_flags(profile)
