"""Finding keys written in clear, so that they are refused before anything can print them."""

from __future__ import annotations

import re

from draftgate.errors import Fault
from draftgate.profile.layers import Leaves, dotted

# Names whose last word says "secret". ``…_tokens`` counts tokens, ``…_file`` names a file: neither matches.
_NAME = re.compile(
    r"(^|[_-])(api[_-]?key|access[_-]?key|token|secret|password|passwd|credentials?|bearer)$", re.IGNORECASE
)
# Prefixes under which services hand out keys.
_VALUE = re.compile(r"^(hf_|sk-|ghp_|github_pat_|glpat-|xox[abp]-|AKIA|Bearer\s)")


def keys_in_clear(leaves: Leaves) -> list[Fault]:
    """A fault for each leaf that names or looks like a key; its value is in none of them."""
    return [
        Fault(
            dotted(path),
            entry.origin.name,
            "a key in clear: put it in a file of its own (mode 0600) and state server.api_key_file; "
            "a Hugging Face token belongs in the environment variable HF_TOKEN",
        )
        for path, entry in leaves.items()
        if (_NAME.search(path[-1]) or _looks_like_key(entry.value)) and entry.value != ""
    ]


def _looks_like_key(value: object) -> bool:
    if isinstance(value, list):
        return any(_looks_like_key(item) for item in value)
    return isinstance(value, str) and bool(_VALUE.match(value))
