"""Every fault at once, each with its path, its file and the nearest known name."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.cli.load import load
from draftgate.errors import DraftgateError, ExitCode, FolderUnusable, ProfileError, UnknownName
from draftgate.profile.loader import schema_paths
from draftgate.profile.model import Profile
from tests.conftest import Golden

BAD = """
extends = ["layers/cpu", "layers/tiny-pyton"]
unset = ["drafter"]
descripton = "a misspelt key"

[engine]
name = "vlm"

[target]
dtype = "int4"
served_name = ""

[server]
port = "8000"
api_key = "sk-canary-0123456789"

[speculation]
num_speculative_tokens = 0
topk = 4

[env]
HF_TOKEN = "hf_canary0123456789"
OMP_NUM_THREADS = 2

[engine_flags]
port = 8000
"""


def lines_of(path: Path, *sets: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load(str(path), sets)
    assert caught.value.exit_code == ExitCode.PROFILE
    return "\n".join(caught.value.lines()).replace(f"{path.parent}/", "") + "\n"


def test_all_faults_of_a_bad_profile_are_told_together(tmp_path: Path, golden: Golden) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(BAD)
    text = lines_of(path, "sidecar.prt=1", "nonsense")
    assert "canary" not in text
    golden("profile/bad.txt", text)


@pytest.mark.parametrize(
    ("sets", "fault"),
    [
        ("unset=['drafter']", "--set: unset: is not a path of a profile"),
        ("name=other", "--set: name: is the file's name; take this key out"),
        ("sidecar.port=8000", "--set: sidecar.port: is the engine's own port, server.port"),
        (
            "memory.kv_cache_bytes=1000",
            "--set: memory.kv_cache_bytes: must be whole GiB (multiples of 1073741824) on a CPU",
        ),
        (
            "memory.gpu_fraction=0.9",
            "--set: memory.gpu_fraction: means nothing on a CPU: state memory.kv_cache_bytes",
        ),
        ("speculation.topk=2", "--set: speculation.topk: vLLM drafts chains only: must be 1"),
        (
            "speculation.expected_acceptance_length=4.5",
            "--set: speculation.expected_acceptance_length: cannot be above 4",
        ),
        ("engine_flags.api-key=x", "--set: engine_flags.api-key: a key in clear"),
        ("engine_flags.seed=Bearer abc", "--set: engine_flags.seed: a key in clear"),
        (
            "engine_flags.enforce-eager=true",
            "--set: engine_flags.enforce-eager: is stated by execution.eager: set that instead",
        ),
        (
            "engine.line=custom",
            "--set: engine.line: engine.line = custom and engine.source go together",
        ),
        ("port=1", "--set: port: there is no such key; did you mean 'server.port'?"),
        ("server.port=70000", "--set: server.port: input should be less than or equal to 65535"),
        ("server.port=true", "--set: server.port: input should be a valid integer"),
        ("launch.drain_seconds=inf", "--set: launch.drain_seconds: input should be a finite number"),
        (
            "launch.start_timeout_seconds=1e400",
            "--set: launch.start_timeout_seconds: input should be a finite",
        ),
        ('env."A B"="1"', "--set: env.A B: string should match pattern"),
        ('""=1', '--set: "": there is no such key'),
        ("engine_flags.hf-overrides={}", "--set: engine_flags.hf-overrides: must be true, false, a number"),
        ("speculation.engine_keys.x={}", "--set: speculation.engine_keys.x: must be true, false, a number"),
        ("box.gpu_ids=3", "--set: box.gpu_ids: must be a list"),
        ("target=3", "--set: target: must be a table"),
        ("engine.source=", "--set: engine.source: is empty: name a file, or unset it"),
        ("server.api_key_file= ", "--set: server.api_key_file: is empty: name a file, or unset it"),
        (
            'engine_flags.served-model-name="["a"]"',
            "--set: engine_flags.served-model-name: is stated by target.served_name: set that instead",
        ),
    ],
)
def test_one_fault(sets: str, fault: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load("vllm-cpu-eagle", [sets])
    assert any(line.line().startswith(fault) for line in caught.value.faults), caught.value.lines()


@pytest.mark.parametrize("value", ["{}", "{a = 1}", "[[1]]", "[{}, {}]", "1979-05-27"])
@pytest.mark.parametrize("key", ["engine_flags.seed", "speculation.engine_keys.model_name"])
def test_a_value_of_many_types_is_one_fault(key: str, value: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load("vllm-cpu-eagle", [f"{key}={value}"])
    assert [fault.path for fault in caught.value.faults] == [key]


@pytest.mark.parametrize("name", ["speculation", "env"])
def test_an_empty_table_that_takes_nothing_away_says_so(name: str, tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    text = 'description = "x"\nextends = ["vllm-cpu-eagle"]\n'
    file.write_text(f"{text}{name} = {{}}\n")
    with pytest.raises(ProfileError) as caught:
        load(str(file))
    (fault,) = caught.value.faults
    assert (fault.path, f'unset = ["{name}"]' in fault.what) == (name, True)
    file.write_text(f"{text}[{name}]\n# Nothing of its own yet.\n")
    load(str(file))


def test_a_profile_that_is_there_and_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hides the one that comes along, as it would if it could be read."""
    monkeypatch.setenv("DRAFTGATE_PROFILE_PATH", str(tmp_path))
    (tmp_path / "vllm-cpu.toml").symlink_to(tmp_path / "gone")
    (tmp_path / "folder.toml").mkdir()
    for name, why in (("vllm-cpu", "No such file"), ("folder", "Is a directory")):
        with pytest.raises(ProfileError) as caught:
            load(name)
        assert why in caught.value.faults[0].what


def test_a_folder_of_own_profiles_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTGATE_PROFILE_PATH", f"{tmp_path}:{tmp_path / 'gone'}")
    with pytest.raises(FolderUnusable) as caught:
        load("vllm-cpu")
    assert str(tmp_path / "gone") in caught.value.what


def test_graphs_in_tokens_where_requests_are_not_stated() -> None:
    """vLLM captures up to any number of tokens, also to one that no number of requests makes."""
    assert (
        "--max-cudagraph-capture-size"
        in load("vllm-eagle", ["engine_flags.max-cudagraph-capture-size=510"]).command.argv()
    )
    with pytest.raises(ProfileError, match="1 fault"):
        load(
            "vllm-eagle",
            ["engine_flags.max-cudagraph-capture-size=510", "execution.graph_max_requests=8"],
        )


@pytest.mark.parametrize(
    "name", ["served-model-name=other", "served_model_name=other", "no-trust-remote-code"]
)
def test_what_the_tool_states_is_not_stated_again_under_another_spelling(name: str, tmp_path: Path) -> None:
    file = tmp_path / "twice.toml"
    file.write_text(f'extends = ["vllm-cpu"]\n[engine_flags]\n"{name}" = true\n')
    with pytest.raises(ProfileError) as caught:
        load(str(file))
    ((path, what),) = [(fault.path, fault.what) for fault in caught.value.faults]
    assert path == f"engine_flags.{name}"
    assert what.startswith("is stated by target.")


def test_a_name_longer_than_the_file_system_takes_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "long.toml"
    file.write_text(f'extends = ["vllm-cpu", "{"x" * 300}", "{"x" * 300}.toml"]\n')
    with pytest.raises(ProfileError) as caught:
        load(str(file))
    assert [fault.path for fault in caught.value.faults] == ["extends", "extends"]
    with pytest.raises(UnknownName):
        load("x" * 300)


def test_k_without_a_drafter_and_a_drafter_without_k(tmp_path: Path) -> None:
    for kept, path in (("drafter", "drafter.model"), ("speculation", "speculation.num_speculative_tokens")):
        gone = "speculation" if kept == "drafter" else "drafter"
        file = tmp_path / "half.toml"
        file.write_text(f'extends = ["vllm-cpu-eagle"]\nunset = ["{gone}"]\n')
        with pytest.raises(ProfileError) as caught:
            load(str(file))
        assert [fault.path for fault in caught.value.faults] == [path]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([".".join(path) for path in schema_paths(Profile)]) | st.text(max_size=20),
            st.text(max_size=20),
        )
    )
)
def test_whatever_is_set_is_a_profile_or_a_list_of_faults(pairs: list[tuple[str, str]]) -> None:
    with contextlib.suppress(DraftgateError):
        load("vllm-cpu-eagle", [f"{path}={value}" for path, value in pairs])


@given(st.text(max_size=200))
def test_whatever_a_file_holds_is_a_profile_or_a_list_of_faults(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "any.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError):
        load(str(path))
