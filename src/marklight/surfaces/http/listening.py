"""A socket to serve at, taken before the server itself is loaded: what cannot be had is told at once."""

from __future__ import annotations

import socket

from marklight.errors import UsageError

BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address, before anything else is begun; port 0 takes a free one."""
    try:
        kind, *_, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Of a socket that is not called TCP, asyncio does not know that small parts are to be sent at
        # once: the second part of every answer would wait 40 ms for the client's system.
        made = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{host} is no address to serve at: {error}") from None
    try:
        if kind == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows lets two serve at one port otherwise
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise UsageError(
            f"nothing can be served at {host}:{port}: {error.strerror or error}",
            "Choose another with --port; 0 takes a free one",
        ) from None
    made.setblocking(False)
    return made


def port_of(listening: socket.socket) -> int:
    """Where it listens, which the system may have chosen."""
    return int(listening.getsockname()[1])
