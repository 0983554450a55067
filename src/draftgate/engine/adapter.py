"""Profile → command, whatever the engine; and what an engine cannot do, found before it is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from draftgate.engine import sglang, vllm
from draftgate.engine.command import EngineCommand, Variable
from draftgate.engine.conformity import Mismatch, check
from draftgate.engine.contract import load_contract
from draftgate.engine.pins import PINS, Pin, find_pin
from draftgate.engine.words import base_url, own_variables, shared_variables
from draftgate.errors import Fault
from draftgate.profile.layers import Leaves, dotted
from draftgate.profile.model import EngineName, Line, Profile


def pin_of(profile: Profile) -> Pin:
    """The pin of a profile that `engine_faults` found nothing wrong with."""
    pin = find_pin(profile.engine.name, profile.engine.line)
    if pin is None:
        raise LookupError(profile.engine)
    return pin


def command(profile: Profile, pin: Pin) -> EngineCommand:
    """What serves ``profile`` at ``pin``."""
    own: Iterator[Variable] = iter(())
    # SGLang reads a key from its arguments or its --config file, from no variable.
    key_variable = None
    match profile.engine.name:
        case EngineName.VLLM:
            arguments, own, key_variable = vllm.arguments(profile), vllm.variables(profile), "VLLM_API_KEY"
        case EngineName.SGLANG:
            arguments = sglang.arguments(profile)
        case _:
            assert_never(profile.engine.name)
    return EngineCommand(
        pin=pin,
        arguments=tuple(arguments),
        # The profile's own come last, and so win.
        variables=(*shared_variables(profile), *own, *own_variables(profile)),
        # Files of an earlier run in an inherited folder would be merged into this run's metrics.
        stripped=("PROMETHEUS_MULTIPROC_DIR",),
        api_key_variable=key_variable,
        api_key_file=profile.server.api_key_file,
        base_url=base_url(profile),
        drain_seconds=profile.launch.drain_seconds,
    )


def engine_faults(leaves: Leaves) -> Iterator[Fault]:
    """What the named engine refuses. Works on leaves, so that it is reported beside every other fault."""
    values = {dotted(path): entry for path, entry in leaves.items()}
    name, line = values.get("engine.name"), values.get("engine.line")
    if name is None or name.value not in list(EngineName):
        return
    engine = EngineName(str(name.value))
    if line is not None and line.value in list(Line) and find_pin(engine, Line(str(line.value))) is None:
        known = ", ".join(f"{pin.engine} on {pin.line}" for pin in PINS)
        yield Fault(
            "engine.line", line.origin.name, f"there is no pin for {engine} on {line.value}; there is {known}"
        )
    derived = vllm.DERIVED if engine is EngineName.VLLM else sglang.DERIVED
    for path, entry in leaves.items():
        owner = derived.get(path[1]) if path[0] == "engine_flags" and len(path) > 1 else None
        if owner:
            yield Fault(dotted(path), entry.origin.name, f"is stated by {owner}: set that instead")
    topk = values.get("speculation.topk")
    if topk is not None and topk.value != 1:
        what = "vLLM drafts chains only" if engine is EngineName.VLLM else "trees are not supported yet"
        yield Fault("speculation.topk", topk.origin.name, f"{what}: must be 1")
    key = values.get("server.api_key_file")
    if engine is EngineName.SGLANG and key is not None:
        # Served without it, the engine would be open to everybody who can reach it.
        what = "SGLang takes its key from arguments or a config file alone, which is not supported yet"
        yield Fault("server.api_key_file", key.origin.name, what)
    cache = values.get("memory.kv_cache_bytes")
    if engine is EngineName.SGLANG and cache is not None:
        what = "SGLang sizes its cache by memory.gpu_fraction, or in tokens by engine_flags.max-total-tokens"
        yield Fault("memory.kv_cache_bytes", cache.origin.name, what)


def mismatches(command: EngineCommand) -> tuple[Mismatch, ...]:
    """What of a command its pin does not know: flags, values, keys and variables, by the pin's contract."""
    return check(load_contract(command.pin.id), command)
