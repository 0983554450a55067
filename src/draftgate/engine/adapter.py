"""Profile → command, whatever the engine; and what an engine cannot do, found before it is started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from draftgate.engine import sglang, vllm
from draftgate.engine.aux_layers import expressed, loaded_as
from draftgate.engine.aux_rules import KNOWN_TARGETS, LLAMA_DRAFTER, rules_for
from draftgate.engine.combinations import broken_combinations
from draftgate.engine.command import EngineCommand, Variable
from draftgate.engine.conformity import Wrong, check
from draftgate.engine.contract import Contract, load_contract
from draftgate.engine.pins import PINS, Pin, find_pin
from draftgate.engine.words import base_url, own_variables, shared_variables
from draftgate.errors import AuxLayersRefused, AuxLayersUnknown, Fault
from draftgate.profile.layers import Leaves, dotted, key_path
from draftgate.profile.model import Drafter, EngineName, Line, Profile

_GRAPHS = "execution.graph_max_requests"


def pin_of(profile: Profile) -> tuple[Pin, Contract]:
    """The pin of a profile that `engine_faults` found nothing wrong with, and what it knows.

    Raises:
        EngineMissing: the own build of line ``custom`` is not there.
    """
    if profile.engine.source is not None:
        # Brings what extracts contracts; profiles of pins need none of it.
        from draftgate.engine.custom import custom

        return custom(profile.engine.name, profile.engine.source)
    pin = find_pin(profile.engine.name, profile.engine.line)
    if pin is None:
        raise LookupError(profile.engine)
    return pin, load_contract(pin.id)


def command(profile: Profile, pin: Pin, contract: Contract) -> EngineCommand:
    """What serves ``profile`` at ``pin``."""
    own: Iterator[Variable] = iter(())
    key_variable = key_config = None
    match profile.engine.name:
        case EngineName.VLLM:
            arguments, own = vllm.arguments(profile, cpu=pin.cpu), vllm.variables(profile, cpu=pin.cpu)
            key_variable = "VLLM_API_KEY"
        case EngineName.SGLANG:
            arguments = sglang.arguments(profile, contract, cpu=pin.cpu)
            # It reads a key from its arguments or its YAML file, from no variable.
            key_config = "--config"
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
        api_key_config=key_config,
        api_key_file=profile.server.api_key_file,
        base_url=base_url(profile),
        drain_seconds=profile.launch.drain_seconds,
    )


def engine_faults(leaves: Leaves) -> Iterator[Fault]:
    """What the named engine refuses. Works on leaves, so that it is reported beside every other fault."""
    name, line = leaves.get(("engine", "name")), leaves.get(("engine", "line"))
    if name is None or name.value not in list(EngineName):
        return
    engine = EngineName(str(name.value))
    pin = find_pin(engine, Line(str(line.value))) if line is not None and line.value in list(Line) else None
    derived = vllm.DERIVED if engine is EngineName.VLLM else sglang.DERIVED
    flags = load_contract((pin or next(one for one in PINS if one.engine is engine)).id).flags
    for path, entry in leaves.items():
        if path[0] != "engine_flags" or len(path) < 2:
            continue
        # Under any of its names, with its value in the name, and a part alone (--speculative-config.model).
        flag = re.split(r"[.=]", path[1])[0].replace("_", "-")
        known = flags.get(f"--{flag}")
        spellings = [one.removeprefix("--") for one in known.names] if known else [flag]
        owner = next((derived[one] for one in spellings if one in derived), None)
        if owner == _GRAPHS and key_path(_GRAPHS) not in leaves:
            continue  # vLLM counts tokens there, and not every number of them is one of requests
        if owner:
            yield Fault(dotted(path), entry.origin.name, f"is stated by {owner}: set that instead")
        elif flag == "help":
            yield Fault(dotted(path), entry.origin.name, "prints a text and ends: nothing would be served")
    for path, entry in leaves.items():
        if path[:2] != ("speculation", "engine_keys") or len(path) < 3:
            continue
        if engine is not EngineName.VLLM:
            what = "is for vLLM's --speculative-config: state SGLang's own flags in engine_flags"
            yield Fault(dotted(path), entry.origin.name, what)
        elif path[2] in vllm.DERIVED_KEYS:
            what = f"is stated by {vllm.DERIVED_KEYS[path[2]]}: set that instead"
            yield Fault(dotted(path), entry.origin.name, what)
    topk = leaves.get(("speculation", "topk"))
    if engine is EngineName.VLLM and topk is not None and topk.value != 1:
        yield Fault("speculation.topk", topk.origin.name, "vLLM drafts chains only: must be 1")
    cache = leaves.get(("memory", "kv_cache_bytes"))
    if engine is EngineName.SGLANG and cache is not None:
        what = "SGLang sizes its cache by memory.gpu_fraction, or in tokens by engine_flags.max-total-tokens"
        yield Fault("memory.kv_cache_bytes", cache.origin.name, what)


def refusals(profile: Profile, contract: Contract, command: EngineCommand) -> Iterator[Fault]:
    """What the engine at this version does not know, or cannot do together; origins are the caller's to fill.

    Of an own build whose contract could not be extracted only the second is known.
    """
    broken = list(broken_combinations(contract, command, profile))
    if contract.unverified is None:
        own_keys = profile.speculation.engine_keys if profile.speculation else {}
        for one in check(contract, command):
            if one.wrong is Wrong.UNKNOWN_VARIABLE and one.source in {fault.path for fault in broken}:
                continue  # a rule says what became of it
            key = one.name.removeprefix("--speculative-config.")
            path = f"speculation.engine_keys.{key}" if key in own_keys else one.source
            yield Fault(path, "", f"{one.name}: {one.what}", one.nearest)
    yield from broken
    if profile.drafter is not None:
        yield from _unfeedable(profile, profile.drafter, contract)


def _unfeedable(profile: Profile, drafter: Drafter, contract: Contract) -> Iterator[Fault]:
    """A drafter that this version does not load, or not feed the layers that it is to have."""
    try:
        rules = rules_for(contract)
    except AuxLayersUnknown:
        return
    name = drafter.architecture
    if name is not None and loaded_as(rules, name) not in rules.drafters:
        known = ", ".join(sorted(rules.drafters))
        what = f"{contract.title} does not load {name}; it loads {known} ({rules.sources[0]})"
        yield Fault("drafter.architecture", "", what)
        return
    target = KNOWN_TARGETS.get(profile.target.model)
    if drafter.aux_layers is None or target is None:
        return
    graphs = not profile.execution.eager
    try:
        expressed(contract, target, drafter.aux_layers, drafter=name or LLAMA_DRAFTER, graphs=graphs)
    except AuxLayersRefused as error:
        yield Fault(
            "drafter.aux_layers", "", ": ".join(filter(None, [str(error), error.why, error.next_step]))
        )
