"""The API key: read from its file when a client needs it, and shown by nothing."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr

from draftgate.errors import DraftgateError


def read_key(path: Path | None) -> SecretStr | None:
    """The key in the first line of ``path``, or None where no file is named.

    Raises:
        DraftgateError: the file cannot be read, or is empty.
    """
    if path is None:
        return None
    try:
        lines = Path(os.path.expanduser(path)).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DraftgateError("the API key cannot be read", where=str(path), why=why) from None
    key = lines[0].strip() if lines else ""
    if not key:
        raise DraftgateError("the API key's file is empty", where=str(path), next_step="write the key in it")
    return SecretStr(key)
