"""The engine's log on its way to our standard output: cut into lines, redacted, remembered, bounded."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_LINE_BYTES = 64 * 1024
_REMEMBERED_LINES = 5000
FILE_BYTES = 64 * 2**20


class LineCutter:
    """Cuts a byte stream at ``\\n`` and ``\\r``: progress bars rewrite their line with the latter.

    A line is given out only when it is whole, since half a secret would pass the redaction. What goes beyond
    64 KiB is dropped for the same reason.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._dropped = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """Each whole line with its ending."""
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b"" if not lines or lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        # The "\n" of a "\r\n" may still be on its way; it then comes out as an empty line's end.
        for line in lines:
            body = line.rstrip(b"\r\n")
            yield self._text(body), line[len(body) :].decode()
            self._dropped = 0
        if len(self._rest) > _LINE_BYTES:
            self._dropped += len(self._rest) - _LINE_BYTES
            self._rest = self._rest[:_LINE_BYTES]

    def end(self) -> Iterator[tuple[str, str]]:
        """What was begun and not ended."""
        if self._rest:
            yield self._text(self._rest), "\n"
        self._rest = b""

    def _text(self, body: bytes) -> str:
        dropped = self._dropped + max(0, len(body) - _LINE_BYTES)
        text = body[:_LINE_BYTES].decode(errors="replace")
        return f"{text} … [{dropped} bytes dropped]" if dropped else text


class EngineLog:
    """Passes the log through and keeps its last 5000 lines, redacted, to explain a death with.

    Attributes:
        place: where to read it, in words.
        lines: the last ones.
    """

    def __init__(
        self, out: BinaryIO, redact: Callable[[str], str], on_line: Callable[[str], None], state_dir: Path
    ) -> None:
        self._out: BinaryIO | None = out
        self._redact = redact
        self._on_line = on_line
        self._cutter = LineCutter()
        path = _file_of(out)
        self.place = "the engine's log, above" if path is None else str(path)
        # A file of the user's own is the user's to bound.
        self._bounded = path is not None and path.is_relative_to(state_dir)
        self.lines: deque[str] = deque(maxlen=_REMEMBERED_LINES)

    def feed(self, data: bytes) -> None:
        for text, ending in self._cutter.feed(data):
            self._pass(text, ending)
        self._flush()

    def end(self) -> None:
        for text, ending in self._cutter.end():
            self._pass(text, ending)
        self._flush()

    def _pass(self, text: str, ending: str) -> None:
        clean = self._redact(text)
        if clean.strip():
            self.lines.append(clean)
            self._on_line(clean)
        if self._out is not None:
            try:
                self._out.write(f"{clean}{ending}".encode())
            except OSError:
                self._out = None  # whoever read it is gone; the engine must not stop for that

    def _flush(self) -> None:
        if self._out is None:
            return
        try:
            self._out.flush()
            if self._bounded:
                bound_file(self._out.fileno())
        except (OSError, ValueError):
            self._out = None


def _file_of(out: BinaryIO) -> Path | None:
    try:
        descriptor = out.fileno()
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return None
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")) if regular else None


def bound_file(descriptor: int, limit: int = FILE_BYTES) -> None:
    """Move what a file holds to ``NAME.1`` once it holds more than ``limit`` bytes.

    Copied and cut rather than renamed: launcher and guard hold the descriptor, and it appends.
    """
    if os.fstat(descriptor).st_size <= limit:
        return
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    target = os.open(f"{path}.1", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while os.sendfile(target, source, None, 2**20):
            pass
    finally:
        os.close(source)
        os.close(target)
    os.ftruncate(descriptor, 0)
