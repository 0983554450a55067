"""The parser that contracts are extracted from, given command lines: JSON in, its complaints out.

pinned_parser.py ROOT PACKAGE PLATFORM; a process of its own, as `draftgate.engine.extraction.parser` is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from draftgate.engine.extraction import parser as extraction


class Refused(Exception):
    pass


def refuse(message: str) -> NoReturn:
    raise Refused(message)


def main() -> None:
    root, package, platform = sys.argv[1:]
    lines = json.load(sys.stdin)
    seen: list[argparse.ArgumentParser] = []
    describe = extraction._flags

    def keep(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
        seen.append(parser)
        return describe(parser)

    extraction._flags = keep
    extraction.build(Path(root), package, platform)
    (parser,) = seen
    parser.error = refuse  # type: ignore[method-assign]
    complaints = {}
    for name, words in lines.items():
        try:
            parser.parse_args(words)
        except Refused as error:
            complaints[name] = str(error)
    print(json.dumps(complaints))


if __name__ == "__main__":
    main()
