"""What two profiles of one model are meant to differ in, so that an A/B compares what it means to."""

from __future__ import annotations

from dataclasses import dataclass

from draftgate.profile.layers import Entry, KeyPath
from draftgate.profile.loader import Resolved

# Arms are told apart by these; everything else (target, requests at once, context, limits) is alike.
_MEANT: frozenset[str] = frozenset({"description", "engine", "speculation", "drafter", "engine_flags", "env"})
# The engines mean different shares of memory by the fraction, and capture graphs by different counts.
_MEANT_KEYS: frozenset[KeyPath] = frozenset({("memory", "gpu_fraction"), ("execution", "graph_max_requests")})


@dataclass(frozen=True)
class Difference:
    """One key that two profiles do not say alike; None where one does not say it."""

    path: KeyPath
    a: Entry | None
    b: Entry | None

    @property
    def meant(self) -> bool:
        return self.path[0] in _MEANT or self.path in _MEANT_KEYS


def differences(a: Resolved, b: Resolved) -> tuple[Difference, ...]:
    """Every key that ``a`` and ``b`` say differently, sorted by path."""
    found = []
    for path in sorted({*a.leaves, *b.leaves}):
        left, right = a.leaves.get(path), b.leaves.get(path)
        if left is None or right is None or left.value != right.value:
            found.append(Difference(path, left, right))
    return tuple(found)
