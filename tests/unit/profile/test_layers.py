"""Laying layers over each other: order, unset, replacement, and where each value comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftgate.errors import ProfileError, UnknownName
from draftgate.profile.catalogue import Catalogue
from draftgate.profile.layers import Origin
from draftgate.profile.loader import Resolved, resolve

BASE = """
description = "base"
[engine]
name = "vllm"
line = "cpu"
[target]
model = "org/model"
# One name for all arms.
served_name = "m"
[memory]
max_running_requests = 4 # small
[env]
A = "1"
B = "1"
[engine_flags]
stop = ["a", "b"]
"""


def write(folder: Path, **files: str) -> Catalogue:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return Catalogue((folder,))


def load(catalogue: Catalogue, name: str = "top", *sets: str, **environ: str) -> Resolved:
    return resolve(name, catalogue, environ=environ, sets=sets, cwd=Path("/somewhere"))


def faults(catalogue: Catalogue, name: str = "top", *sets: str, **environ: str) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        load(catalogue, name, *sets, **environ)
    return [fault.line() for fault in caught.value.faults]


def test_later_layers_win_tables_merge_and_lists_replace(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path,
        layers__base=BASE,
        layers__more='[env]\nB = "2"\nC = "2"\n[engine_flags]\nstop = ["c"]\n',
        top='extends = ["layers/base", "layers/more"]\ndescription = "top"\n[env]\nC = "3"\n',
    )
    resolved = load(catalogue)
    assert resolved.profile.description == "top"
    assert resolved.profile.env == {"A": "1", "B": "2", "C": "3"}
    assert resolved.profile.engine_flags == {"stop": ("c",)}
    assert resolved.layers == ("layers/base.toml", "layers/more.toml", "top.toml")


def test_each_value_knows_its_file_and_its_comment(tmp_path: Path) -> None:
    resolved = load(write(tmp_path, layers__base=BASE, top='extends = ["layers/base"]\n'))
    above, beside, default = (
        resolved.origin(path) for path in ("target.served_name", "memory.max_running_requests", "server.port")
    )
    assert above is not None
    assert (above.name, above.comment) == ("layers/base.toml", "One name for all arms.")
    assert beside is not None
    assert beside.comment == "small"
    assert default is None


def test_unset_takes_away_a_table_or_a_key(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path, layers__base=BASE, top='extends = ["layers/base"]\nunset = ["env", "engine_flags.stop"]\n'
    )
    profile = load(catalogue).profile
    assert profile.env == {}
    assert profile.engine_flags == {}


def test_a_flag_with_a_dot_in_its_name_has_an_origin_and_can_be_unset(tmp_path: Path) -> None:
    base = BASE + '"compilation-config.mode" = 3\n'
    top = 'extends = ["layers/base"]\n'
    stated = load(write(tmp_path, layers__base=base, top=top))
    origin = stated.origin("engine_flags.compilation-config.mode")
    assert origin == Origin("layers/base.toml", tmp_path / "layers")
    top += 'unset = ["engine_flags.compilation-config.mode"]\n'
    gone = load(write(tmp_path, layers__base=base, top=top))
    assert gone.profile.engine_flags == {"stop": ("a", "b")}


def test_unset_of_what_is_not_there_is_a_fault(tmp_path: Path) -> None:
    catalogue = write(tmp_path, layers__base=BASE, top='extends = ["layers/base"]\nunset = ["enviroment"]\n')
    assert faults(catalogue) == ["top.toml: unset: 'enviroment' is not set by any layer below"]


def test_a_shared_base_does_not_override_what_stands_between(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path,
        layers__base=BASE,
        layers__left='extends = ["layers/base"]\n[env]\nA = "left"\n',
        layers__right='extends = ["layers/base"]\n[env]\nB = "right"\n',
        top='extends = ["layers/left", "layers/right"]\n',
    )
    assert load(catalogue).profile.env == {"A": "left", "B": "right"}


def test_a_value_replaces_a_table_and_is_then_found_wrong(tmp_path: Path) -> None:
    catalogue = write(tmp_path, layers__base=BASE, top='extends = ["layers/base"]\nenv = 3\n')
    assert faults(catalogue) == ["top.toml: env: must be a table"]


def test_circle_and_missing_layer_are_told_together(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path,
        layers__base=BASE,
        layers__a='extends = ["layers/b"]\n',
        layers__b='extends = ["layers/a"]\n',
        top='extends = ["layers/a", "layers/bsae"]\n',
    )
    assert faults(catalogue) == [
        "layers/b.toml: extends: goes in a circle: top.toml → layers/a.toml → layers/b.toml → layers/a.toml",
        "top.toml: extends: there is no layer 'layers/bsae'; did you mean 'layers/base'?",
    ]


def test_order_of_precedence_is_file_variable_option(tmp_path: Path) -> None:
    catalogue = write(tmp_path, top=BASE)
    variables = {"DRAFTGATE_SET__server__port": "1", "DRAFTGATE_SET__server__host": "::1"}
    server = load(catalogue, "top", "server.port=2", **variables).profile.server
    assert (server.host, server.port) == ("::1", 2)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("execution.eager=true", "execution.eager", True),
        ("target.served_name=plain words", "target.served_name", "plain words"),
        ('target.served_name="quoted"', "target.served_name", "quoted"),
        ("env.N=1", "env.N", "1"),
        ("engine_flags.seed=7", "engine_flags.seed", 7),
        ("engine_flags.stop=['x', 'y']", "engine_flags.stop", ["x", "y"]),
        ("target.model=./m", "target.model", "/somewhere/m"),
        ("target.served_name=a=b", "target.served_name", "a=b"),
    ],
)
def test_options_take_toml_values_or_plain_text(tmp_path: Path, text: str, path: str, value: object) -> None:
    resolved = load(write(tmp_path, top=BASE), "top", text)
    assert resolved.leaves[tuple(path.split("."))].value == value


def test_variables_name_flags_with_underscores(tmp_path: Path) -> None:
    resolved = load(write(tmp_path, top=BASE), DRAFTGATE_SET__engine_flags__max_num_seqs="3")
    assert resolved.profile.engine_flags["max-num-seqs"] == 3


def test_relative_folders_are_relative_to_the_file_that_says_them(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path, layers__base=BASE.replace("org/model", "../weights"), top='extends = ["layers/base"]\n'
    )
    assert load(catalogue).profile.target.model == str(tmp_path / "weights")


def test_an_earlier_folder_hides_a_later_one(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    own.mkdir()
    shipped.mkdir()
    write(shipped, top=BASE, other=BASE)
    write(own, top=BASE.replace('"base"', '"mine"'))
    catalogue = Catalogue((own, shipped))
    assert catalogue.names() == ["other", "top"]
    assert load(catalogue).profile.description == "mine"


def test_a_path_is_a_profile_too(tmp_path: Path) -> None:
    write(tmp_path, alone=BASE)
    assert load(Catalogue(()), str(tmp_path / "alone.toml")).profile.name == "alone"


def test_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        load(write(tmp_path, top=BASE), "tpo")
    assert caught.value.next_step == "did you mean 'top'? draftgate profiles lists them all"


@pytest.mark.parametrize(
    "text", ["a = ", "a = 1\na = 2\n", "[target\n", "\x00", "extends = 3\nunset = [1]\n"]
)
def test_a_broken_file_is_a_fault_not_a_traceback(tmp_path: Path, text: str) -> None:
    assert faults(write(tmp_path, top=text))


def test_keys_of_a_line_hold_on_that_line_alone(tmp_path: Path) -> None:
    catalogue = write(
        tmp_path,
        layers__base=BASE + '[line.cpu.env]\nA = "cpu"\nD = "cpu"\n[line.cuda13.env]\nA = "13"\n',
        top='extends = ["layers/base"]\n[env]\nD = "top"\n',
    )
    assert load(catalogue).profile.env == {"A": "cpu", "B": "1", "D": "top"}
    assert load(catalogue, "top", "engine.line=cuda13").profile.env == {"A": "13", "B": "1", "D": "top"}


def test_an_unknown_line_is_a_fault(tmp_path: Path) -> None:
    catalogue = write(tmp_path, top=BASE + '[line.cpuu.env]\nA = "x"\n')
    assert faults(catalogue) == [
        "top.toml: line.cpuu: must be a table [line.NAME], of cpu, cuda12, torch211, cuda13, custom; did you mean 'cpu'?"  # noqa: E501
    ]
