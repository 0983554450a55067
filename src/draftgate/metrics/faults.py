"""Why an engine's answer cannot be used: a closed list, so that each can be a label value."""

from __future__ import annotations

import enum

from draftgate.errors import EngineUnreachable


class Fault(enum.StrEnum):
    """What went wrong between asking an engine and understanding what it answered."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    HTTP_STATUS = "http_status"
    TOO_LARGE = "too_large"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    NOT_UTF8 = "not_utf8"
    MALFORMED = "malformed"
    BAD_VALUE = "bad_value"
    WRONG_ENGINE = "wrong_engine"
    NO_KEY = "no_key"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Fault.REFUSED: "nothing listens at the engine's address",
    Fault.TIMEOUT: "the engine did not answer whole within the limit",
    Fault.CONNECTION: "the connection to the engine failed or broke",
    Fault.HTTP_STATUS: "the engine answered with another status than 200; redirects are not followed",
    Fault.TOO_LARGE: "the answer is larger than it can rightly be",
    Fault.TRUNCATED: "the answer ends before it is whole",
    Fault.EMPTY: "the answer is empty",
    Fault.NOT_UTF8: "the answer is not UTF-8 text",
    Fault.MALFORMED: "the answer is not of the expected format",
    Fault.BAD_VALUE: "a series has a value that it cannot have (negative, infinite, not cumulative)",
    Fault.NO_KEY: "the file of server.api_key_file cannot be read",
    Fault.WRONG_ENGINE: "the series are those of another engine than the profile's",
}


class UnusableAnswer(EngineUnreachable):
    """An engine's answer could not be had or not be used.

    The message comes from `Fault` and the status alone: text of the answer never gets into it.
    """

    def __init__(self, fault: Fault, status: int | None = None) -> None:
        said = "" if status is None else f" (status {status})"
        super().__init__(f"no usable answer from the engine: {fault.meaning}{said}")
        self.fault = fault
        self.status = status
