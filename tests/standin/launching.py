"""`draftgate launch` with the stand-in for an engine; folders come from the environment, as for the real one.

launching.py PORT DRAIN_SECONDS START_SECONDS KEY_FILE|- [ENGINE OPTION]...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from draftgate.engine.command import Argument, EngineCommand, Variable
from draftgate.engine.pins import PINS, Pin
from draftgate.errors import DraftgateError
from draftgate.host import lock
from draftgate.launch import process
from draftgate.launch.launcher import launch
from draftgate.profile.model import Profile

STANDIN = Path(__file__).with_name("engine_processes.py")


def profile(port: int, drain_seconds: float = 5.0, start_seconds: float = 60.0) -> Profile:
    return Profile.model_validate(
        {
            "name": "standin",
            "description": "No engine at all",
            "engine": {"name": "vllm", "line": "cpu"},
            "target": {"model": "none", "served_name": "none"},
            "server": {"port": port},
            "launch": {"drain_seconds": drain_seconds, "start_timeout_seconds": start_seconds},
        }
    )


class _Script(EngineCommand):
    def argv(self, python: str = "python") -> tuple[str, ...]:
        return (python, str(STANDIN), *super().argv(python)[3:])


def command(served: Profile, key_file: Path | None, options: list[str]) -> EngineCommand:
    pin: Pin = PINS[0]
    words = ("--port", str(served.server.port), *options)
    return _Script(
        pin=pin,
        arguments=tuple(Argument(word, None, "test") for word in words),
        variables=(Variable("PYTHONUNBUFFERED", "1", "test"),),
        stripped=("PROMETHEUS_MULTIPROC_DIR",),
        api_key_variable="VLLM_API_KEY",
        api_key_config=None,
        api_key_file=key_file,
        base_url=f"http://127.0.0.1:{served.server.port}",
        drain_seconds=served.launch.drain_seconds,
    )


def main() -> int:
    # What takes long on purpose takes one second here.
    for module in (process, lock):
        vars(module).update(AFTER_DRAIN_SECONDS=1.0, ORPHAN_GRACE_SECONDS=1.0)
    port, drain, start, key_file, *options = sys.argv[1:]
    served = profile(int(port), float(drain), float(start))
    key = None if key_file == "-" else Path(key_file)
    wait = float(os.environ.get("TEST_WAIT_LOCK", "0"))
    try:
        return launch(served, command(served, key, options), Path(sys.executable), wait_lock_seconds=wait)
    except DraftgateError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
