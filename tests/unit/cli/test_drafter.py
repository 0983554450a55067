"""`draftgate drafter layers`: what it prints, and when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from draftgate.cli.drafter import app
from draftgate.errors import AuxLayersRefused, CheckpointUnreadable, UnknownName
from tests.conftest import Golden

MODELS = Path(__file__).parents[3] / "models"
TINY = ("--drafter", str(MODELS / "tiny-drafter"), "--target", str(MODELS / "tiny-target"))


def _run(*words: str) -> str:
    result = CliRunner().invoke(app, ["layers", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def aq(tmp_path: Path) -> str:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_table(golden: Golden, aq: str) -> None:
    text = _run(*TINY) + "\n" + _run("--drafter", aq, "--aux-layers", "3,31,59").replace(aq, "AQ")
    golden("aux_layers/verb.txt", text)


def test_json(golden: Golden, aq: str) -> None:
    text = _run("--drafter", aq, "--aux-layers", "3,31,59", "--json").replace(aq, "AQ")
    assert json.loads(text)["pins"]
    golden("aux_layers/verb.json", text)


def test_one_pin(aq: str) -> None:
    rows = json.loads(_run("--drafter", aq, "--pin", "sglang-cuda12", "--eager", "--json"))["pins"]
    key = "eagle_config.eagle_aux_hidden_state_layer_ids"
    assert rows == [{"pin": "sglang-cuda12", "captured": [3, 31, 59], "key": key, "overlay": None}]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--pin", "sglang-cuda12"), AuxLayersRefused),
        (("--pin", "vllm"), UnknownName),
        (("--target", "/gone"), CheckpointUnreadable),
        (("--target", ""), CheckpointUnreadable),
        (("--drafter", ""), CheckpointUnreadable),
    ],
)
def test_failures_of_one_pin_end_the_verb(words: tuple[str, ...], error: type[Exception], aq: str) -> None:
    with pytest.raises(error):
        CliRunner().invoke(app, ["layers", "--drafter", aq, *words], catch_exceptions=False)


def test_layers_that_are_no_numbers(aq: str) -> None:
    result = CliRunner().invoke(app, ["layers", "--drafter", aq, "--aux-layers", "2,x"])
    assert result.exit_code == 2
    assert "not numbers with commas" in result.output
