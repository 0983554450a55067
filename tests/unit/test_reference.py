"""The generated references are those of the code as it is now."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

CODE = "import json; from tools.reference import pages; print(json.dumps(pages()))"


def test_references_equal_the_code() -> None:
    import json

    # In a process of its own: help is fitted to a width that is read once.
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    pages = json.loads(done.stdout)
    assert pages
    stale = [
        name
        for name, text in pages.items()
        if not (path := REPOSITORY / "docs" / "reference" / name).exists() or path.read_text() != text
    ]
    if stale:
        pytest.fail(f"stale: {', '.join(stale)}; `make docs` writes them anew")
