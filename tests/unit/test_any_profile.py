"""Whatever a profile says: a command that its pin accepts, or faults that say where and why."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from draftgate.cli import profiles as show_verb
from draftgate.cli import render as render_verb
from draftgate.cli.load import Loaded, load
from draftgate.cli.served import said_of_drafter
from draftgate.engine.conformity import check
from draftgate.errors import AuxLayersRefused, ProfileError
from draftgate.profile.catalogue import Catalogue
from draftgate.profile.layers import Layer
from draftgate.render.command import Format
from tests.conftest import REPOSITORY
from tests.unit.profile.statements import DERIVED, PARENTS, Said, as_toml, as_tree, sayings

EXAMPLES = 10_000
LEAST_SHARE = 0.15
# The one of libyaml reads several times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def rendered(loaded: Loaded, name: str) -> dict[str, str]:
    """What each verb that looks at one profile prints, in each of its formats."""
    calls: dict[str, Callable[[], None]] = {
        **{one.value: partial(render_verb.render, name, format_=one) for one in Format},
        "explain": partial(render_verb.render, name, explain=True),
        "show": partial(show_verb.show, name),
        "show explain": partial(show_verb.show, name, explain=True),
        "show json": partial(show_verb.show, name, explain=True, as_json=True),
    }
    texts = {}
    with pytest.MonkeyPatch.context() as patch:
        # Loading it once is enough.
        for verb in (render_verb, show_verb):
            patch.setattr(verb, "load", lambda *_: loaded)
        for title, call in calls.items():
            with contextlib.redirect_stdout(io.StringIO()) as out:
                call()
            texts[title] = out.getvalue()
    return texts


def holds_command(loaded: Loaded, name: str) -> None:
    """The contract accepts it, and every format says it."""
    command, profile = loaded.command, loaded.profile
    assert check(loaded.contract, command) == ()
    # No flag that the tool states for a key is stated a second time.
    known = loaded.contract.flags
    derived = {
        known[f"--{one}"].names
        for one, owner in DERIVED[profile.engine.name].items()
        # The one key that may be left out for its flag.
        if f"--{one}" in known
        and (owner != "execution.graph_max_requests" or profile.execution.graph_max_requests is not None)
    }
    own = [one.flag.partition("=")[0] for one in command.arguments if one.source.startswith("engine_flags")]
    assert not any(one in known and known[one].names in derived for one in own)
    sources = [part.source for part in command.arguments] + [part.source for part in command.variables]
    stated = [one for one in sources if one.startswith(("engine_flags.", "env."))]
    assert all(loaded.resolved.origin(one) is not None for one in stated)
    texts = rendered(loaded, name)
    variables = [f"{key}={value}" for key, value in command.environment().items()]
    document = json.loads(texts["json"])
    assert (document["argv"], document["env"]) == (list(command.argv()), command.environment())
    assert texts["argv"] == "\n".join(command.argv()) + "\n"
    assert shlex.split(texts["env"]) == variables
    if profile.server.api_key_file is None:
        stripped = [word for one in command.stripped for word in ("-u", one)]
        assert shlex.split(texts["shell"].replace(" \\\n  ", " ")) == [
            "env",
            *stripped,
            *variables,
            *command.argv(),
        ]
    service = yaml.load(texts["compose"], _LOADER)["services"][profile.name]
    assert service["command"][0] == profile.name
    json.loads(texts["show json"])
    assert all(texts.values())


def _lost(tree: Mapping[str, Any], loaded: Loaded) -> list[tuple[str, str]]:
    """Flags and variables that the file states and the profile does not."""
    return [
        (table, name)
        for table in ("env", "engine_flags")
        for name in tree.get(table, ())
        if (table, name) not in loaded.resolved.leaves
    ]


def holds_faults(error: ProfileError, file: Path) -> None:
    assert error.faults
    origins = {"--set", str(file), file.name, *(f"{parent}.toml" for parent in PARENTS)}
    for fault in error.faults:
        assert fault.path, fault
        assert fault.what.strip(), fault
        assert fault.origin in origins, fault
        # The file's mere name stands for what nobody says.
        assert fault.origin != file.name or not fault.path.startswith(("engine_flags.", "env.")), fault
    assert len(error.lines()) > len(error.faults)
    json.dumps(error.as_json())


@pytest.fixture
def _layers_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the repository's layers anew for each profile would take most of the time."""
    known: dict[Path, Layer] = {}
    read = Catalogue._read

    def remembered(own: Catalogue, path: Path) -> Layer:
        if not path.is_relative_to(REPOSITORY):
            return read(own, path)
        return known[path] if path in known else known.setdefault(path, read(own, path))

    monkeypatch.setattr(Catalogue, "_read", remembered)


@pytest.mark.usefixtures("_layers_read_once")
def test_a_command_that_the_pin_accepts_or_faults_that_say_where_and_why(tmp_path: Path) -> None:
    file = tmp_path / "any.toml"
    ends: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(sayings())
    def end(said: list[Said]) -> None:
        tree = as_tree(said)
        file.write_text(as_toml(tree), encoding="utf-8")
        try:
            loaded = load(str(file))
            # A drafter that is here is looked into before its command is shown.
            said_of_drafter(loaded)
        except ProfileError as error:
            holds_faults(error, file)
            ends["faults"] += 1
        except AuxLayersRefused as error:
            ends["faults"] += bool(error.why)
        else:
            holds_command(loaded, str(file))
            assert _lost(tree, loaded) == []
            ends["command"] += 1

    end()
    assert ends.total() >= EXAMPLES
    assert min(ends["command"], ends["faults"]) >= LEAST_SHARE * ends.total(), ends
