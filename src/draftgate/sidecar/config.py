"""What one sidecar needs to know, taken from a profile and the options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from draftgate.engine.pins import Pin
from draftgate.errors import EngineUnreachable
from draftgate.metrics.baselines import expected_length
from draftgate.metrics.faults import Fault, UnusableAnswer
from draftgate.metrics.rules import Dialect, Rules, rules_for
from draftgate.profile.model import Profile
from draftgate.settings import settings
from draftgate.sidecar.requests import RequestFiles

# 16 data-parallel ranks say about 1 MiB; looking through as much as this takes under a second.
MAX_ANSWER = 8 * 2**20


@dataclass(frozen=True)
class Expectation:
    """An acceptance length and whose word it is."""

    length: float
    source: str


@dataclass(frozen=True)
class SidecarConfig:
    """One engine, watched.

    Attributes:
        profile, engine_version, model, drafter: for ``draftgate_profile_info``; ``model`` is the served name.
        num_speculative_tokens: K; None without a drafter.
        topk: branches per step, 1 in a chain.
        engine_url: without a slash at its end.
        api_key_file: read anew for each request that needs the key.
        stall_seconds: without any progress, requests in hand, from which on the engine counts as stalled.
        scrape_timeout: seconds for the engine's answer, at most, whatever Prometheus allows.
        probe_timeout: seconds for each step of a readiness check.
        expected: acceptance length of a drafter that works; None where nobody says.
        request_files: None where the engine writes none.
        ready_seconds: how long a generation that succeeded says that the engine can generate.
    """

    profile: str
    dialect: Dialect
    engine_version: str
    model: str
    drafter: str | None
    num_speculative_tokens: int | None
    topk: int
    engine_url: str
    api_key_file: Path | None = None
    request_files: RequestFiles | None = None
    expected: Expectation | None = None
    stall_seconds: float = 60.0
    scrape_timeout: float = 10.0
    probe_timeout: float = 5.0
    ready_seconds: float = 30.0

    @property
    def rules(self) -> Rules:
        return rules_for(self.dialect, self.engine_version)

    @property
    def slots(self) -> int | None:
        """Tokens verified per step with the root: K+1 in a chain; for a tree the engine has to say it."""
        if self.num_speculative_tokens is None or self.topk > 1:
            return None
        return self.num_speculative_tokens + 1

    def api_key(self) -> str | None:
        """The engine's key, None where it has none.

        Raises:
            UnusableAnswer: the file cannot be read.
        """
        if self.api_key_file is None:
            return None
        try:
            return self.api_key_file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise UnusableAnswer(Fault.NO_KEY) from None


def configure(
    profile: Profile,
    pin: Pin,
    engine_url: str,
    *,
    stall_seconds: float = SidecarConfig.stall_seconds,
    scrape_timeout: float = SidecarConfig.scrape_timeout,
) -> SidecarConfig:
    """The sidecar of ``profile``, whose engine answers at ``engine_url``.

    Raises:
        EngineUnreachable: that is no HTTP address.
    """
    speculation = profile.speculation
    return SidecarConfig(
        profile=profile.name,
        dialect=Dialect(pin.engine.value),
        engine_version=pin.version,
        model=profile.target.served_name,
        drafter=_public_name(profile.drafter.model) if profile.drafter else None,
        num_speculative_tokens=speculation.num_speculative_tokens if speculation else None,
        topk=speculation.topk if speculation else 1,
        engine_url=_checked(engine_url),
        api_key_file=profile.server.api_key_file,
        request_files=_request_files(profile),
        expected=_expectation(profile),
        stall_seconds=stall_seconds,
        scrape_timeout=scrape_timeout,
    )


def _expectation(profile: Profile) -> Expectation | None:
    speculation, drafter = profile.speculation, profile.drafter
    if speculation is None or drafter is None:
        return None
    if speculation.expected_acceptance_length is not None:
        return Expectation(speculation.expected_acceptance_length, "profile")
    if speculation.topk > 1:
        return None
    found = expected_length(drafter.model, profile.target.model, speculation.num_speculative_tokens)
    return Expectation(found[0], f"{found[1].workload}: {found[1].source}") if found else None


def _request_files(profile: Profile) -> RequestFiles | None:
    """By SGLang's own flags; a relative folder lies in the launch's working folder, which SGLang runs in."""
    told, speculation = profile.engine_flags.get("export-metrics-to-file-dir"), profile.speculation
    if told is None or speculation is None:
        return None
    positions = speculation.depth or speculation.num_speculative_tokens
    folder = Path(str(told))
    if folder.is_absolute():
        return RequestFiles(folder.parent, folder.name, positions)
    return RequestFiles(settings().state_dir, f"work/*/{folder}", positions)


def _public_name(model: str) -> str:
    """A folder's last part, a Hugging Face id whole: where a user keeps models is not for everybody."""
    return Path(model).name if model.startswith(("/", ".", "~")) else model


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or "@" in parts.netloc:
        raise EngineUnreachable(
            "the engine's address is not one",
            where="--engine-url",
            why="it has to be http://HOST:PORT or https://HOST:PORT",
        )
    return url.rstrip("/")
