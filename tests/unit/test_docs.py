"""The pages for people say what is there: commands, profiles, versions, names, figures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from draftgate.cli.load import load
from draftgate.cli.main import app
from draftgate.diagnosis.signatures import SIGNATURES
from tests.conftest import REPOSITORY
from tests.unit.test_box_settings import SCOPES, table

DOCS = REPOSITORY / "docs"
PAGES = (REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("runbooks/*.md")))
# These verbs only look: they are run as they stand.
LOOKING = ("profiles", "show", "render", "diff")


def _commands(page: Path) -> Iterator[list[str]]:
    """Each command line of draftgate in a page's shell blocks, as words."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|\$\(|&& |; )draftgate ((?:[^|&;#)>]|&(?!&))*)", line)
            if found:
                yield shlex.split(found[1].strip())


COMMANDS = [(page, words) for page in PAGES for words in _commands(page)]


def _id(value: object) -> str:
    return value.name if isinstance(value, Path) else " ".join(map(str, value))  # type: ignore[call-overload]


def test_pages_have_commands() -> None:
    assert len(COMMANDS) > 30
    assert {page.name for page, _ in COMMANDS} >= {"README.md", "box.md", "tutorial.md"}


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=_id)
def test_a_command_of_a_page_is_understood(page: Path, words: list[str]) -> None:
    command: Any = get_command(app)
    rest = list(words)
    while children := getattr(command, "commands", None):
        assert rest[0] in children
        command = children[rest.pop(0)]
    # Parses, and refuses an option that is not there; runs nothing.
    command.make_context(words[0], rest).close()


def test_what_is_not_understood_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        test_a_command_of_a_page_is_understood(REPOSITORY, ["render", "sglang", "--explained"])
    with pytest.raises(AssertionError):
        test_a_command_of_a_page_is_understood(REPOSITORY, ["engine", "instal", "vllm-cpu"])


@pytest.mark.parametrize(
    ("page", "words"), [(p, w) for p, w in COMMANDS if p.name == "box.md" and w[0] in LOOKING], ids=_id
)
def test_a_looking_command_of_the_guide_works(page: Path, words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def guide() -> str:
    return (DOCS / "box.md").read_text(encoding="utf-8")


def test_the_guide_speaks_of_what_no_profile_can_set(guide: str) -> None:
    rows = [row for row in table()[0] if row.where == "guide"]
    assert len(rows) > 5
    text = " ".join(guide.split())
    missing = [(row.wanted.name, words) for row in rows for words in row.mentions if words not in text]
    assert missing == []


def test_the_guide_names_the_pins_and_the_revision(guide: str) -> None:
    for name in SCOPES["all"]:
        loaded = load(name)
        assert loaded.pin.lock.exists()
        assert f"draftgate engine install {loaded.pin.id}" in guide
        assert f" {loaded.pin.version}" in guide
        target = loaded.profile.target
        assert f"hf download {target.model} --revision {target.revision}" in guide


def test_names_of_signatures_are_those_of_the_table(guide: str) -> None:
    section = guide.partition("| when | name in the table |")[2].partition("\n\n")[0]
    named = re.findall(r"`([a-z-]+)`", section)
    assert len(named) > 15
    assert set(named) <= {signature.name for signature in SIGNATURES}


def test_the_figures_of_the_memory_table(guide: str) -> None:
    rows = re.findall(r"^\| (0\.\d+)[^|]*\| ([\d,]+)", guide, re.MULTILINE)
    assert len(rows) == 4
    for fraction, said in rows:
        tokens = (float(fraction) * 94.14 - 72.33) * 2**30 / 70_272
        assert round(tokens, -3) == int(said.replace(",", ""))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, (
                target
            )


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    folders = "src|tests|tools|profiles|docker|models"
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text(encoding="utf-8"))
    # A name in capitals stands for one's own.
    missing = [
        path for path in named if not re.search(r"\b[A-Z]{3,}\b", path) and not (REPOSITORY / path).exists()
    ]
    assert missing == []
