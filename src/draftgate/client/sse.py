"""Server-sent events: bytes in any cut → the data of each event."""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class StreamBroken(Exception):
    """What the engine sent is not an event stream that this client can read."""


class EventParser:
    """Collects bytes and gives each event's data, as the HTML standard reads ``text/event-stream``.

    Lines are cut as bytes and decoded whole, so a character split over two reads stays one character.
    Comments (keep-alives), other fields and events without data give nothing. An event without its closing
    blank line is not an event.

    Args:
        limit: bytes that one event may have; more is an error, so that a mad server cannot fill the memory.
    """

    def __init__(self, limit: int = 64 * 2**20) -> None:
        self._limit = limit
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> list[str]:
        """Return the data of the events that ``received`` completes, in order.

        Raises:
            StreamBroken: an event is larger than the limit, or is not UTF-8.
        """
        self._rest += received
        events: list[str] = []
        start = 0
        for end in _LINE_END.finditer(self._rest):
            if end.group() == b"\r" and end.end() == len(self._rest):
                break  # the other half of a CRLF may come with the next read
            line = self._rest[start : end.start()]
            start = end.end()
            if line:
                self._take(line)
            elif self._data:
                events.append(_text(b"\n".join(self._data)))
                self._data, self._size = [], 0
        self._rest = self._rest[start:]
        if self._size + len(self._rest) > self._limit:
            raise StreamBroken(f"an event has more than {self._limit} bytes")
        return events

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise StreamBroken("an event is not UTF-8") from error
