"""Files and folders that are nobody else's business: 0700 and 0600, replaced whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from draftgate.errors import FolderUnusable


def private_folder(path: Path, setting: str) -> Path:
    """Make ``path`` (mode 0700) where it is missing.

    Args:
        setting: the environment variable that moves it, for the error.

    Raises:
        FolderUnusable: it cannot be made or written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise unusable(path, setting, error) from error
    return path


def unusable(path: Path, setting: str, error: OSError) -> FolderUnusable:
    return FolderUnusable(
        f"a folder that draftgate needs cannot be used: {path}",
        where=f"{setting}={path}",
        why=error.strerror or str(error),
        next_step=f"set {setting} to a folder that you can write",
    )


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the new one, whole (mode 0600)."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
