"""The log on its way: cut, redacted, bounded, and never in the engine's way."""

from __future__ import annotations

import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.launch.log import EngineLog, LineCutter, bound_file
from draftgate.launch.redaction import MASK, Redactor

KEY = "sk-canary/+'\"\\key"


def _cut(*blocks: bytes) -> list[tuple[str, str]]:
    cutter = LineCutter()
    return [line for block in blocks for line in cutter.feed(block)] + list(cutter.end())


def test_lines_and_bars() -> None:
    assert _cut(b"one\ntwo\rthr", b"ee\r\n\nlast") == [
        ("one", "\n"),
        ("two", "\r"),
        ("three", "\r\n"),
        ("", "\n"),
        ("last", "\n"),
    ]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_blocks_do_not_matter(data: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(data)]
    blocks = [data[a:b] for a, b in pairwise(bounds)]

    def text(lines: list[tuple[str, str]]) -> str:
        return "".join(body + ending for body, ending in lines)

    assert text(_cut(*blocks)) == text(_cut(data))


def test_an_endless_line_is_cut_off() -> None:
    lines = _cut(*[b"x" * 50_000] * 4, b"\nnext\n")
    assert lines == [("x" * 65536 + " … [134464 bytes dropped]", "\n"), ("next", "\n")]


@pytest.mark.parametrize("size", range(1, 12))
def test_a_key_is_masked_however_the_log_arrives(size: int, tmp_path: Path) -> None:
    out, lines = io.BytesIO(), list[str]()
    log = EngineLog(out, Redactor([KEY]), lines.append, tmp_path)
    data = f"before {KEY} after\nand {KEY!r}\n".encode()
    for start in range(0, len(data), size):
        log.feed(data[start : start + size])
    log.end()
    assert out.getvalue().decode() == f"before {MASK} after\nand '{MASK}'\n"
    assert lines == list(log.lines) == [f"before {MASK} after", f"and '{MASK}'"]


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("args: {'api_key': ['abc', 'def'], 'port': 1}", "args: {'api_key': ***, 'port': 1}"),
        (
            "ServerArgs(api_key='abc', admin_api_key=None, x=1)",
            "ServerArgs(api_key=***, admin_api_key=None, x=1)",
        ),
        ('{"api_key": "abc"}', '{"api_key": ***}'),
        ("serve --api-key abc --port 1", "serve --api-key *** --port 1"),
        ("serve --api-key=abc", "serve --api-key=***"),
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("{'authorization': 'Bearer abcdefghij'}", "{'authorization': 'Bearer ***'}"),
        ("HF_TOKEN is hf_abcdefghijklmnopqrst.", "HF_TOKEN is hf_***."),
        ("proxy http://user:pass@host:1/", "proxy http://user:***@host:1/"),
        ("a bearer of bad news", "a bearer of bad news"),
        ("ServerArgs(api_key=None)", "ServerArgs(api_key=None)"),
    ],
)
def test_what_looks_like_a_secret(line: str, clean: str) -> None:
    assert Redactor()(line) == clean


@pytest.mark.parametrize(
    "log", sorted((Path(__file__).parents[2] / "fixtures" / "logs").iterdir()), ids=lambda path: path.stem
)
def test_nothing_else_is_touched(log: Path) -> None:
    text = log.read_text()
    assert Redactor()(text) == text


def test_a_reader_that_leaves_does_not_stop_the_engine(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb", buffering=0) as out:
        log = EngineLog(out, Redactor(), lambda _: None, tmp_path)
        log.feed(b"one\n")
        log.feed(b"two\n")
    assert list(log.lines) == ["one", "two"]


def test_a_log_of_ours_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    with path.open("ab") as out:
        for number in range(4):
            out.write(b"%d" % number * 6)
            out.flush()
            bound_file(out.fileno(), limit=10)
        out.write(b"end")
    assert (path.read_bytes(), (tmp_path / "engine.log.1").read_bytes()) == (b"end", b"222222333333")


def test_a_file_of_the_users_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftgate.launch.log.bound_file", lambda _: pytest.fail("bounded"))
    (tmp_path / "state").mkdir()
    with (tmp_path / "mine.log").open("ab") as out:
        log = EngineLog(out, Redactor(), lambda _: None, tmp_path / "state")
        log.feed(b"line\n")
        assert log.place == str(tmp_path / "mine.log")
