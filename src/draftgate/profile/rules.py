"""Rules that hold between keys of a profile, whatever the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from draftgate.errors import Fault
from draftgate.profile.model import Line, Profile

_GIB = 2**30


def broken_rules(profile: Profile, origin: Callable[[str], str]) -> Iterator[Fault]:
    """The faults of a well-typed profile; ``origin`` names who says the value at a dotted path."""

    def fault(path: str, what: str) -> Fault:
        return Fault(path, origin(path), what)

    if profile.speculation is not None and profile.drafter is None:
        yield fault(
            "speculation.num_speculative_tokens",
            "tokens are to be proposed, but there is no drafter: state drafter.model, or unset speculation",
        )
    if profile.drafter is not None and profile.speculation is None:
        yield fault(
            "drafter.model",
            "there is a drafter, but nothing is to be proposed: "
            "state speculation.num_speculative_tokens (K), or unset drafter",
        )
    spec = profile.speculation
    if spec is not None and spec.topk > 1 and spec.depth is None:
        yield fault("speculation.depth", "a tree needs it: the number of draft steps, each of topk branches")
    if spec is not None and spec.depth is not None:
        # The first step gives topk nodes, each later one topk for each of topk parents.
        most = spec.topk + (spec.depth - 1) * spec.topk**2
        if spec.topk == 1:
            yield fault("speculation.depth", "is for trees: a chain has as many steps as tokens, K")
        elif not spec.depth <= spec.num_speculative_tokens <= most:
            what = f"must be {spec.depth} to {most}, the nodes of {spec.depth} steps by {spec.topk}"
            yield fault("speculation.num_speculative_tokens", what)
    layers = profile.drafter.aux_layers if profile.drafter is not None else None
    if layers is not None and not layers:
        yield fault(
            "drafter.aux_layers", "names no layer: unset it, and the drafter's config.json says which"
        )
    if layers is not None and len(set(layers)) < len(layers):
        yield fault("drafter.aux_layers", f"names a layer twice: {', '.join(map(str, layers))}")
    if spec is not None and spec.expected_acceptance_length is not None:
        longest = (spec.depth or spec.num_speculative_tokens) + 1
        if spec.expected_acceptance_length > longest:
            yield fault("speculation.expected_acceptance_length", f"cannot be above {longest}")
    if (profile.engine.line is Line.CUSTOM) is not (profile.engine.source is not None):
        both = "engine.line = custom and engine.source go together"
        yield fault("engine.source" if profile.engine.source else "engine.line", both)
    if profile.server.port == profile.sidecar.port:
        yield fault("sidecar.port", "is the engine's own port, server.port")
    cache = profile.memory.kv_cache_bytes
    if profile.engine.line is Line.CPU and cache is not None and cache % _GIB:
        yield fault("memory.kv_cache_bytes", f"must be whole GiB (multiples of {_GIB}) on a CPU")
    if profile.engine.line is Line.CPU and profile.memory.gpu_fraction is not None:
        yield fault("memory.gpu_fraction", "means nothing on a CPU: state memory.kv_cache_bytes")
