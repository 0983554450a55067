from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.client.sse import EventParser, StreamBroken

WHOLE = (
    ": keep-alive\n\n"
    'data: {"a": "ä€🐍"}\n\n'
    "event: x\r\nid: 7\r\ndata:no space\r\n\r\n"
    "data: two\ndata: lines\n\n"
    "data\n\n"
    "retry: 5\n\n"
    "data: [DONE]\r\r"
    "data: unfinished\n"
).encode()
EVENTS = ['{"a": "ä€🐍"}', "no space", "two\nlines", "", "[DONE]"]


def parsed(pieces: list[bytes]) -> list[str]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_an_event_is_what_the_standard_says() -> None:
    assert parsed([WHOLE]) == EVENTS


def test_one_byte_at_a_time() -> None:
    assert parsed([bytes([byte]) for byte in WHOLE]) == EVENTS


@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=40))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(WHOLE)]
    assert parsed([WHOLE[a:b] for a, b in pairwise(edges)]) == EVENTS


LINE = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=20)


@given(
    datas=st.lists(LINE, max_size=6),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 7),
)
def test_any_text_comes_back_whole(datas: list[str], ends: str, size: int) -> None:
    # The closing comment line completes a trailing lone CR.
    whole = ("".join(f"data: {data}{ends}{ends}" for data in datas) + ":\n").encode()
    assert parsed([whole[at : at + size] for at in range(0, len(whole), size)]) == datas


@given(pieces=st.lists(st.binary(max_size=30), max_size=10))
def test_any_bytes_give_events_or_one_kind_of_error(pieces: list[bytes]) -> None:
    with suppress(StreamBroken):
        assert all(isinstance(event, str) for event in parsed(pieces))


@pytest.mark.parametrize("line", [b"x" * 101, b"data: " + b"y" * 60 + b"\ndata: " + b"y" * 60 + b"\n"])
def test_an_endless_event_is_refused(line: bytes) -> None:
    with pytest.raises(StreamBroken, match="more than 100 bytes"):
        EventParser(limit=100).feed(line)
