"""Published acceptance lengths, by drafter, target and K: data, in baselines.toml, and its reading."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("baselines.toml")


@dataclass(frozen=True)
class Baseline:
    """One published curve.

    Attributes:
        lengths: acceptance length by K, for at least one K.
    """

    drafter: str
    target: str
    workload: str
    conditions: str
    source: str
    lengths: Mapping[int, float]

    def at_least(self, k: int) -> float:
        """The length at K = ``k``, or the least that it can be where only other K were measured.

        A later position is never accepted more often than an earlier one, so the mean over the first ``k`` is
        no less than that over more; and positions beyond the measured ones add something or nothing.
        """
        if k in self.lengths:
            return self.lengths[k]
        bounds = [1 + k * (length - 1) / more for more, length in self.lengths.items() if more > k]
        return max(bounds + [length for fewer, length in self.lengths.items() if fewer < k])


@cache
def baselines() -> tuple[Baseline, ...]:
    """All of them, in the order of the file."""
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        Baseline(**{**entry, "lengths": {int(k): length for k, length in entry["lengths"].items()}})
        for entry in document["baseline"]
    )


def expected_length(drafter: str, target: str, k: int) -> tuple[float, Baseline] | None:
    """The lowest length published for this pair in a chain of K = ``k``; None where there is none.

    The lowest: another workload is no fault of the drafter's. A folder counts as what it is named after.
    """
    pair = (_name(drafter), _name(target))
    found = [(one.at_least(k), one) for one in baselines() if (_name(one.drafter), _name(one.target)) == pair]
    return min(found, key=lambda one: one[0], default=None)


def _name(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]
