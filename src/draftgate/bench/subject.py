"""What was measured, for the receipt: the engine with its rendered command, and the models' digests."""

from __future__ import annotations

from pathlib import Path

from draftgate.bench.endpoint import Endpoint
from draftgate.engine.command import EngineCommand
from draftgate.profile.model import Profile
from draftgate.receipt import ModelDigest, model_digest


def engine_facts(profile: Profile, command: EngineCommand) -> dict[str, object]:
    """The engine by its pin, and the command without secrets."""
    speculation = profile.speculation
    return {
        "profile": profile.name,
        "engine": str(command.pin.engine),
        "version": command.pin.version,
        "torch": command.pin.torch,
        "command": list(command.argv()),
        "environment": command.environment(),
        "num_speculative_tokens": speculation.num_speculative_tokens if speculation else None,
    }


def stranger_facts(endpoint: Endpoint) -> dict[str, object]:
    """All that is known of an engine that was given by its address."""
    return {"base_url": endpoint.base_url, "model": endpoint.model}


def model_digests(profile: Profile) -> dict[str, ModelDigest]:
    """Digests of those models that are folders of this machine, by role."""
    named = {"target": profile.target.model, "drafter": profile.drafter.model if profile.drafter else None}
    found = {role: model_digest(Path(path)) for role, path in named.items() if path}
    return {role: digest for role, digest in found.items() if digest}
