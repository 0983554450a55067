"""Whether the engine serves: its health endpoint answers, and then one real token comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable

from draftgate.client.control import generate_one_token
from draftgate.client.exchange import exchange
from draftgate.metrics.faults import Fault, UnusableAnswer

_POLL_SECONDS = 0.5
# SGLang's /health itself generates a token and takes from 1 to 20 s.
_HEALTH_SECONDS = 25.0
_HEALTH_BYTES = 64 * 1024
# A client's fault: asking again gives the same answer.
_HOPELESS = frozenset({400, 401, 403, 404, 405, 422})


class Refused(Exception):
    """The engine answers, but will never generate: the status it gave is not one that passes."""


def await_ready(
    base_url: str,
    model: str,
    key: str | None,
    *,
    seconds: float,
    cancelled: threading.Event,
    healthy: Callable[[], None],
) -> bool:
    """Wait for health, then for one token.

    Args:
        seconds: limit for one generation; the first may compile kernels.
        cancelled: set from outside when the answer no longer matters.
        healthy: called once, when the health endpoint first says so.

    Returns:
        False where it was cancelled.

    Raises:
        Refused: see there.
    """
    while not _is_healthy(base_url):
        if cancelled.wait(_POLL_SECONDS):
            return False
    healthy()
    while not cancelled.is_set():
        try:
            generate_one_token(base_url, model, seconds=seconds, key=key)
        except UnusableAnswer as answer:
            if answer.fault is Fault.HTTP_STATUS and answer.status in _HOPELESS:
                raise Refused(f"it answers HTTP {answer.status} to a request for one token") from None
            cancelled.wait(_POLL_SECONDS)
        else:
            return True
    return False


def _is_healthy(base_url: str) -> bool:
    try:
        return exchange(f"{base_url}/health", seconds=_HEALTH_SECONDS, max_bytes=_HEALTH_BYTES).status == 200
    except UnusableAnswer:
        return False
