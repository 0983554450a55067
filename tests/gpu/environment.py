"""Makes the engines' and draftgate's environments on a GPU machine without network, from carried parts.

    python3 tests/gpu/environment.py --parts DIR --into FOLDER

Parts are ``NAME.tar.xz.00``, ``.01``, … of archives of Python packages: both engines with what they need
beyond the machine's own torch and, in the folder ``dgsite``, what requirements/run.lock names and draftgate's
metadata. Standard library alone; runs with the interpreter that holds torch. Prints the interpreters that it
made.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def unpack(parts: Path, into: Path) -> None:
    """Extract every archive whose parts lie in ``parts``, once."""
    archives = sorted({part.name.rpartition(".")[0] for part in parts.glob("*.tar.xz.*")})
    for name in archives:
        done = into / f".{name}"
        if done.exists():
            continue
        with tempfile.TemporaryFile() as whole:
            for part in sorted(parts.glob(f"{name}.*")):
                whole.write(part.read_bytes())
            whole.seek(0)
            with tarfile.open(fileobj=whole, mode="r:xz") as archive:
                archive.extractall(into, filter="tar")
        done.touch()


def make(folder: Path, paths: list[Path]) -> Path:
    """An environment that also finds packages in ``paths``, in this order; its folder of packages."""
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    (site / "carried.pth").write_text("".join(f"{path}\n" for path in paths))
    return site


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    into = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    machine = Path(sysconfig.get_paths()["purelib"])
    # The engines lie in their environment itself: draftgate looks there for the pinned version.
    engines = make(into / "engines", [machine])
    unpack(options.parts, engines)
    make(into / "draftgate", [REPOSITORY / "src", engines / "dgsite", machine])
    print(into / "engines/bin/python", into / "draftgate/bin/python")


if __name__ == "__main__":
    main()
