"""What the adapters share: tables of flags → words, a profile's own flags, addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftgate.engine.command import Argument, Variable
from draftgate.profile.model import Profile

# Flag without dashes, and the key of the profile that it carries. True stands alone; False and None are left
# out.
FlagTable = Sequence[tuple[str, str]]


def stated(profile: Profile, table: FlagTable) -> Iterator[Argument]:
    """The words of a table of flags."""
    for flag, path in table:
        section, key = path.split(".")
        value = getattr(getattr(profile, section), key)
        if value is not None and value is not False:
            yield Argument(f"--{flag}", None if value is True else str(value), path)


def own_flags(profile: Profile) -> Iterator[Argument]:
    """The words of ``engine_flags``; false takes back what a flag of both forms turns on."""
    for name, value in profile.engine_flags.items():
        source = f"engine_flags.{name}"
        if isinstance(value, bool):
            yield Argument(f"--{name}" if value else f"--no-{name}", None, source)
        elif isinstance(value, tuple):
            first, *rest = value or ("",)
            yield Argument(f"--{name}", str(first), source)
            yield from (Argument(str(item), None, source) for item in rest)
        else:
            yield Argument(f"--{name}", str(value), source)


def shared_variables(profile: Profile) -> Iterator[Variable]:
    """What every engine takes from its environment."""
    yield Variable("PYTHONUNBUFFERED", "1", "draftgate", "so that the log arrives line by line")
    if profile.execution.threads is not None:
        yield Variable("OMP_NUM_THREADS", str(profile.execution.threads), "execution.threads")


def own_variables(profile: Profile) -> Iterator[Variable]:
    for name, value in profile.env.items():
        yield Variable(name, value, f"env.{name}")


def base_url(profile: Profile) -> str:
    """Where a client on this machine reaches what binds to ``server.host``."""
    host = profile.server.host
    # An address of all interfaces is one to bind, not one to connect to.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{profile.server.port}"
