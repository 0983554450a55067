"""The engine that is measured: its address, what it should be, and how its counters are read."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr

from draftgate.bench.counters import Scrape
from draftgate.client.control import models
from draftgate.client.stream import StreamClient
from draftgate.errors import BenchRefused, EngineUnreachable
from draftgate.metrics.reading import read
from draftgate.metrics.rules import Dialect, rules_for
from draftgate.metrics.sample import EngineSample

_SECONDS = 10.0


@dataclass(frozen=True)
class Endpoint:
    """A running engine.

    Attributes:
        base_url: without a path.
        engine_version: where it is known; it decides what some metrics mean.
        speculates: whether it was configured to; None where nobody knows.
    """

    base_url: str
    model: str
    api_key: SecretStr | None = None
    engine_version: str | None = None
    speculates: bool | None = None


def find_model(base_url: str, api_key: SecretStr | None, wanted: str | None) -> str:
    """The served model: ``wanted``, or the only one there is.

    Raises:
        EngineUnreachable: no engine answers.
        BenchRefused: it does not serve ``wanted``, or serves several and none is named.
    """
    key = api_key.get_secret_value() if api_key else None
    try:
        served = models(base_url, seconds=_SECONDS, key=key)
    except EngineUnreachable as error:
        raise EngineUnreachable(
            error.what, where=base_url, next_step="start it with `draftgate up PROFILE --wait`"
        ) from None
    if wanted in served or (wanted is None and len(served) == 1):
        return wanted or served[0]
    raise BenchRefused(
        f"the engine does not serve {wanted!r}" if wanted else "the engine serves several models",
        where=base_url,
        why=f"it serves: {', '.join(served) or 'nothing'}",
        next_step="name one of them with --model, or bench the profile that runs",
    )


async def dialect_of(client: StreamClient) -> Dialect | None:
    """Which engine it is, by its metrics; None where it publishes none of an engine that is known."""
    text = await client.text("/metrics")
    return next((dialect for dialect in Dialect if f"\n{dialect}:" in f"\n{text}"), None)


async def scraper(client: StreamClient, dialect: Dialect | None, version: str | None) -> Scrape | None:
    """How to read this engine's counters, or None where it publishes none.

    Raises:
        UnusableAnswer: its metrics are damaged.
    """
    text = await client.text("/metrics")
    if text is None or dialect is None:
        return None
    rules = rules_for(dialect, version)
    if read(text, rules) is None:
        return None

    async def scrape() -> EngineSample:
        text = await client.text("/metrics")
        sample = read(text, rules) if text else None
        if sample is None:
            raise EngineUnreachable("the engine no longer gives its metrics", where=client.base_url)
        return sample

    return scrape
