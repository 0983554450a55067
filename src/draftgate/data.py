"""Where the data that comes along lies: in a checkout at its top, in a wheel beside the code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@cache
def data_root() -> Path:
    """The folder that holds ``profiles/``, ``models/`` and ``docker/``."""
    packaged = _PACKAGE / "_data"
    return packaged if packaged.is_dir() else _PACKAGE.parent.parent
