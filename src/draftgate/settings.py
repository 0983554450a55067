"""The tool's own settings: folders and limits, apart from profiles.

Every setting is an environment variable ``DRAFTGATE_<NAME>``, such as ``DRAFTGATE_STATE_DIR``.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from platformdirs import user_data_path, user_state_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_SYSTEM = Path("/run/lock")


def _shared_lock_dir() -> Path:
    """One folder for all users of the box where the system has one, else the user's own.

    The GPU lock only works when everybody who starts an engine takes the same file.
    """
    shared = _SYSTEM / "draftgate"
    # Where only root may make it, as on Fedora, somebody may have made it for all.
    if os.access(_SYSTEM, os.W_OK) or os.access(shared, os.W_OK):
        return shared
    return user_state_path("draftgate") / "lock"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="DRAFTGATE_", frozen=True, extra="ignore")

    data_dir: Path = Field(
        default_factory=lambda: user_data_path("draftgate"),
        description="Engine environments and what they cache.",
    )
    state_dir: Path = Field(
        default_factory=lambda: user_state_path("draftgate"),
        description="What runs now: one record, logs, receipts.",
    )
    lock_dir: Path = Field(
        default_factory=_shared_lock_dir,
        description="Folder of the GPU lock; the same for everybody on the box, containers included.",
    )
    profile_path: str = Field(
        default="",
        description="Folders with own profiles, separated by ':', searched before those that come along.",
    )
    engine_python: Path | None = Field(
        default=None,
        description="Interpreter of the one engine that an image holds, instead of what is installed.",
    )
    wheelhouse: Path | None = Field(
        default=None,
        description="Folder with wheels that `engine install` takes before it asks an index.",
    )
    torch_index: str = Field(
        default="https://download.pytorch.org/whl/cpu",
        description="Index of PyTorch's CPU builds, asked only for torch and only when pip finds no wheel.",
    )


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()
