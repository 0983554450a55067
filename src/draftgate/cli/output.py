"""How verbs print: tables that survive a pipe, JSON, and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from draftgate.errors import DraftgateError


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table fitted to the terminal; into a pipe aligned columns, whole, whatever their width."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*head, box=SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            # Text, so that brackets in values are not read as markup; folded, so that nothing is cut off.
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        Console().print(table)
        return
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_error(error: DraftgateError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(error.as_json(), ensure_ascii=False), file=sys.stderr)
        return
    head, *rest = error.lines()
    red, plain = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}error:{plain} {head}", *rest, sep="\n", file=sys.stderr)
