"""What all tests share: golden files."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

GOLDEN = Path(__file__).parent / "golden"
REPOSITORY = Path(__file__).parents[1]

# Nothing timed decides a test: a busy machine is no fault of the code.
hypothesis.settings.register_profile("draftgate", deadline=None)
hypothesis.settings.load_profile("draftgate")

Golden = Callable[[str, str], None]


# A shell starts background jobs with Ctrl-C ignored, nohup with hang-ups; what they start inherits that,
# and tests send both. With a handler here they are at their defaults there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="Write golden files anew; read the diff.")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden("subject/name.txt", text)``: the text equals the committed file, byte for byte.

    The repository's own path in the text is replaced, and columns of a table as wide as that path are set two
    spaces apart, so that files are the same wherever the repository lies.
    """

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if str(REPOSITORY) in text:
            text = re.sub(r"(?<=\S) {2,}(?=\S)", "  ", text.replace(str(REPOSITORY), "REPOSITORY"))
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {path}; make it with --update-golden and read it"
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what the shell of its user sets on top of profiles."""
    for name in os.environ:
        if name.startswith("DRAFTGATE_SET__") or name == "DRAFTGATE_PROFILE_PATH":
            monkeypatch.delenv(name)
