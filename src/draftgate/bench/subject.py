"""What a profile says of the engine that is measured: how to reach it, and what the receipt tells of it."""

from __future__ import annotations

from pathlib import Path

from draftgate.bench.endpoint import Endpoint
from draftgate.client.key import read_key
from draftgate.engine.command import EngineCommand
from draftgate.profile.model import Profile
from draftgate.receipt import ModelDigest, model_digest


def endpoint_of(profile: Profile, command: EngineCommand) -> Endpoint:
    """The engine that serves ``profile``.

    Raises:
        DraftgateError: its API key cannot be read.
    """
    return Endpoint(
        base_url=command.base_url,
        model=profile.target.served_name,
        api_key=read_key(command.api_key_file),
        engine_version=command.pin.version,
        speculates=profile.speculation is not None,
    )


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
