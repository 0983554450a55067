"""The text: Python's standard library, whole files of it set aside for evaluation before any training."""

from __future__ import annotations

import hashlib
import json
import platform
import random
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

# Tests are as large as the rest of the library and repeat themselves; encodings and pydoc_data are tables.
EXCLUDED_PARTS = frozenset(
    {"site-packages", "test", "tests", "idle_test", "encodings", "pydoc_data", "__pycache__"}
)
HELD_OUT_SHARE = 0.08
# Below this a held-out file has no room for a prompt and what follows it.
HELD_OUT_MINIMUM_BYTES = 4000


@dataclass(frozen=True)
class SourceFile:
    """One file of the library; `file` is relative to the library's folder."""

    file: str
    sha256: str
    held_out: bool
    text: str


def collect(seed: int, root: Path | None = None) -> list[SourceFile]:
    """Read the library of the running Python, sorted by name; the seed decides which files are held out."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        # _sysconfigdata differs from build to build of the same Python version.
        if EXCLUDED_PARTS & set(name.parts) or name.name.startswith("_sysconfigdata"):
            continue
        try:
            text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        if text.strip():
            texts[name.as_posix()] = text
    candidates = [name for name, text in texts.items() if len(text) >= HELD_OUT_MINIMUM_BYTES]
    held_out = set(random.Random(seed).sample(candidates, round(HELD_OUT_SHARE * len(candidates))))
    return [
        SourceFile(name, hashlib.sha256(text.encode()).hexdigest(), name in held_out, text)
        for name, text in texts.items()
    ]


def digest(files: list[SourceFile]) -> str:
    """Return one SHA-256 over names and contents, in order."""
    joined = "".join(f"{file.sha256}  {file.file}\n" for file in files)
    return hashlib.sha256(joined.encode()).hexdigest()


def write(files: list[SourceFile], path: Path) -> None:
    """Write the corpus as JSON lines, the Python version first, so that another machine can train on it."""
    head = {"python": platform.python_version(), "digest": digest(files)}
    lines = [json.dumps(head), *(json.dumps(asdict(file)) for file in files)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[str, list[SourceFile]]:
    """Return the Python version and the files of a corpus written by `write`, its digest checked."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    files = [SourceFile(**json.loads(line)) for line in lines]
    if digest(files) != json.loads(head)["digest"]:
        msg = (
            f"{path}: the digest in its first line does not fit its files; delete it and run the corpus stage"
        )
        raise ValueError(msg)
    return str(json.loads(head)["python"]), files


def manifest(files: list[SourceFile]) -> str:
    """Return the training files in the format of sha256sum, for models/training-files.txt."""
    return "".join(f"{file.sha256}  {file.file}\n" for file in files if not file.held_out)
