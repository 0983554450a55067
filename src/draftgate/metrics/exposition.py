"""Exposition text → the few series that are wanted, checked for what a damaged answer looks like."""

from __future__ import annotations

from collections.abc import Set

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from draftgate.metrics.faults import Fault, UnusableAnswer

# 16 data-parallel ranks with long names stay well under these. They bound the time that the parser
# below, which goes character by character and back again, can be kept busy: some tenths of a second.
MAX_LINE = 2**10
MAX_WANTED = 2**19


def decode(body: bytes) -> str:
    """The text of an answer.

    Raises:
        UnusableAnswer: it is empty, ends inside a line (the format ends every line with a line feed, the last
            one too, and a cut number would still look like one), or is not UTF-8.
    """
    if not body or body.isspace():
        raise UnusableAnswer(Fault.EMPTY)
    if not body.endswith(b"\n"):
        raise UnusableAnswer(Fault.TRUNCATED)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise UnusableAnswer(Fault.NOT_UTF8) from None


def select(text: str, wanted: Set[str]) -> str:
    """The sample lines of ``wanted`` series, without comments.

    Filtering before parsing is what makes a scrape cheap. Without TYPE lines the parser takes every sample by
    its own name, so a wrong type declared by the engine cannot rename one.
    """
    lines = [line for line in text.split("\n") if line.partition("{")[0].partition(" ")[0] in wanted]
    if sum(map(len, lines)) > MAX_WANTED or any(len(line) > MAX_LINE for line in lines):
        raise UnusableAnswer(Fault.TOO_LARGE)
    # Two lines of one series: neither can be believed, and a sum over ranks would count both.
    if len({line.rpartition(" ")[0] for line in lines}) != len(lines):
        raise UnusableAnswer(Fault.MALFORMED)
    return "\n".join(lines)


def parse(text: str) -> dict[str, list[Sample]]:
    """Sample lines by series name, in the order of the text; values are floats.

    Raises:
        UnusableAnswer: a line is not of the format.
    """
    series: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not isinstance(sample.value, float):  # "3" is an int to the parser
                    sample = sample._replace(value=float(sample.value))
                series.setdefault(sample.name, []).append(sample)
    except Exception:  # the parser raises whatever a damaged line leads it to, not one documented type
        raise UnusableAnswer(Fault.MALFORMED) from None
    return series
