from __future__ import annotations

from pathlib import Path

import pytest

from draftgate.client.key import read_key
from draftgate.errors import DraftgateError


def test_a_key_is_the_first_line_and_shows_itself_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(" canary-key \nnot read\n")
    key = read_key(path)
    assert key is not None
    assert key.get_secret_value() == "canary-key"
    assert "canary" not in f"{key} {key!r}"


def test_no_file_is_no_key() -> None:
    assert read_key(None) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"", None), (b"\nx", None), (b"\xff-canary", "not UTF-8")],
)
def test_an_unusable_file_says_so_without_its_content(
    tmp_path: Path, content: bytes | None, why: str | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DraftgateError) as caught:
        read_key(path)
    assert (caught.value.where, caught.value.why) == (str(path), why)
    assert "canary" not in "".join(caught.value.lines())
    assert caught.value.__cause__ is None
