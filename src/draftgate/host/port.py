"""Whether a port can be bound, asked before minutes of loading."""

from __future__ import annotations

import socket

from draftgate.errors import EngineFailed


def refuse_if_taken(host: str, port: int, section: str) -> None:
    """Bind ``host:port`` and let it go.

    Args:
        section: of the profile, which says so: ``server`` or ``sidecar``.

    Raises:
        EngineFailed: that cannot be done. A server that answers there would otherwise pass for the engine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the engines do: connections of an earlier engine that linger do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise EngineFailed(
            f"the address {host}:{port} cannot be used; nothing was started",
            where=f"{section}.host, {section}.port",
            why=error.strerror or str(error),
            next_step=f"ss -ltnp 'sport = :{port}' shows who has it; --set {section}.port=PORT takes another",
        ) from None
