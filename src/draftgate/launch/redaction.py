"""Secrets taken out of the log before anybody sees it.

Engines log their arguments at the start, SGLang the API key with them (``server_args=ServerArgs(…)``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
# Each names what stays as group 1; the rest of the match is the secret.
_SHAPES = (
    # api_key='…', 'api_key': '…', "admin_api_key": "…", api_key=['…', '…'], --api-key …, --api-key=…
    re.compile(
        r"""((?:api|admin)[_-]?key['"]?\s*[:=]\s*)(?!None\b)(\[[^\]]*\]|'[^']*'|"[^"]*"|[^\s,;)}\]]+)""", re.I
    ),
    re.compile(r"(--[a-z-]*api-key(?:\s+|=))(\S+)", re.I),
    re.compile(r"""(\bAuthorization['"]?\s*[:=]\s*['"]?(?:Bearer|Basic)\s+)([^\s'",]+)""", re.I),
    re.compile(r"""(\bBearer\s+)([^\s'",]{8,})""", re.I),
    re.compile(r"(\bhf_)([A-Za-z0-9]{16,})"),
    re.compile(r"(://[^\s/:@]+:)([^\s/@]+)(?=@)"),
)


class Redactor:
    """Masks known secrets, in the spellings a log may give them, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {s for secret in secrets for s in _spellings(secret)}
        # Longest first: one spelling may be the beginning of another.
        ordered = sorted(spellings, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        for shape in _SHAPES:
            text = shape.sub(rf"\g<1>{MASK}", text)
        return text


def _spellings(secret: str) -> set[str]:
    return {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret, safe="")} - {""}
