from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.standin.launched import LIMIT, Launched, free_port, standin_argv

Start = Callable[..., Launched]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(engine option, …, drain=, start=, key_file=, environment=)``: a launch of the stand-in."""
    with ExitStack() as stack:

        def go(
            *options: str | Path,
            port: int | None = None,
            drain: float = 5.0,
            start: float = LIMIT,
            key_file: Path | None = None,
            environment: dict[str, str] | None = None,
        ) -> Launched:
            argv = standin_argv(
                port or free_port(),
                "--pids",
                tmp_path / "pids",
                *options,
                drain=drain,
                start=start,
                key_file=key_file,
            )
            return stack.enter_context(Launched(tmp_path, argv, environment))

        yield go
