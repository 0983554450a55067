"""One HTTP exchange under a total deadline and a size limit.

The timeout of a socket, and so of requests, is per read: an engine that drips one byte at a time, even within
its headers, outlasts it for ever. Here a timer shuts the socket down, whatever the exchange is at. Nothing is
followed (an answer that points elsewhere is an answer), no proxy is asked, nothing is decompressed.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from draftgate.metrics.faults import Fault, UnusableAnswer


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = field(repr=False)


def exchange(
    url: str,
    *,
    seconds: float,
    max_bytes: int,
    send: Mapping[str, object] | None = None,
    key: str | None = None,
) -> Answer:
    """GET ``url``, or POST ``send`` to it as JSON.

    Args:
        seconds: limit for all of it, from connecting to the last byte.
        max_bytes: largest body to take.
        key: sent as a bearer token.

    Raises:
        UnusableAnswer: no whole answer in time, or too large a one. Any status is an answer.
    """
    parts = urlsplit(url)
    scheme = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    # A name can have two addresses, tried one after the other; half the limit lets both have a turn.
    connection = scheme(parts.hostname or "", parts.port, timeout=seconds / 2)
    expired = threading.Event()
    try:
        connection.connect()
        timer = threading.Timer(seconds, _expire, (connection.sock, expired))
        timer.daemon = True
        timer.start()
        try:
            connection.sock.settimeout(seconds)
            _ask(connection, parts.path or "/", send, key)
            answer = _answer(connection.getresponse(), max_bytes)
        finally:
            timer.cancel()
    except UnusableAnswer as error:
        raise UnusableAnswer(Fault.TIMEOUT if expired.is_set() else error.fault) from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a broken chunk size
        raise UnusableAnswer(Fault.TIMEOUT if expired.is_set() else _fault(error)) from None
    finally:
        connection.close()
    # A body without a stated length ends where the connection does, and so also where the timer ended it.
    if expired.is_set():
        raise UnusableAnswer(Fault.TIMEOUT)
    return answer


def _expire(connected: socket.socket, expired: threading.Event) -> None:
    expired.set()
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # closed meanwhile: the exchange was over


def _ask(
    connection: http.client.HTTPConnection, path: str, send: Mapping[str, object] | None, key: str | None
) -> None:
    headers = {"Connection": "close", "Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if send is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["Content-Type"] = "application/json"
        connection.request("POST", path, json.dumps(send).encode(), headers)


def _answer(response: http.client.HTTPResponse, max_bytes: int) -> Answer:
    if response.getheader("Content-Encoding", "identity") != "identity":
        raise UnusableAnswer(Fault.MALFORMED)
    if response.length is not None and response.length > max_bytes:
        raise UnusableAnswer(Fault.TOO_LARGE)
    body = response.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnusableAnswer(Fault.TOO_LARGE)
    if response.length:  # bytes promised and not sent; read() with a size does not complain
        raise UnusableAnswer(Fault.TRUNCATED)
    return Answer(response.status, body)


def _fault(error: Exception) -> Fault:
    match error:
        case ConnectionRefusedError():
            return Fault.REFUSED
        case TimeoutError():
            return Fault.TIMEOUT
        case http.client.IncompleteRead():
            return Fault.TRUNCATED
        case _:
            return Fault.CONNECTION
