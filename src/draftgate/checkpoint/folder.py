"""From a model's name to its folder: a path, or a snapshot in the local Hugging Face cache. No network.

The cache is laid out as huggingface_hub does it: ``models--OWNER--NAME/refs/REVISION`` holds a commit,
``snapshots/COMMIT/`` its files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from draftgate.errors import CheckpointUnreadable

_ID = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def find_folder(model: str, revision: str | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of ``model``, absolute.

    Args:
        model: a path (begins with /, ./, ../ or ~, or is there) or a Hugging Face id.
        revision: branch, tag or commit of a Hugging Face id; None is ``main``.

    Raises:
        CheckpointUnreadable: there is no such folder, or the snapshot is not in the cache.
    """
    if not model.strip():
        raise CheckpointUnreadable("no model is named", next_step="name a folder or a Hugging Face id")
    path = Path(os.path.expanduser(model))
    # Not Path.is_dir, which raises on a name longer than the file system takes.
    there = os.path.isdir(path)
    if model.startswith(("/", "./", "../", "~")) or not _ID.fullmatch(model) or there:
        if there:
            return path.resolve()
        raise CheckpointUnreadable("there is no such model folder", where=str(path))
    cache, name = _cache(environment), revision or "main"
    repository = cache / f"models--{model.replace('/', '--')}"
    reference = repository / "refs" / name
    commit = name if _COMMIT.fullmatch(name) else _read(reference)
    snapshot = repository / "snapshots" / commit if commit else None
    if snapshot is None or not (snapshot / "config.json").is_file():
        raise CheckpointUnreadable(
            f"{model} is not in the local Hugging Face cache"
            + (f" at revision {revision}" if revision else ""),
            where=str(repository),
            why="its config.json must be read, and rewritten for the engine, before it is served",
            next_step=f"hf download {model}" + (f" --revision {revision}" if revision else ""),
        )
    return snapshot


def _cache(environment: Mapping[str, str]) -> Path:
    """As in huggingface_hub/constants.py: HF_HUB_CACHE, its old name, HF_HOME/hub, XDG_CACHE_HOME."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(os.path.expanduser(os.path.expandvars(environment[name])))
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or f"{base}/huggingface"
    return Path(os.path.expanduser(os.path.expandvars(home))) / "hub"


def _read(reference: Path) -> str | None:
    try:
        return reference.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
