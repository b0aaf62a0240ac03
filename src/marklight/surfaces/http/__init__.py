"""HTTP server: the JSON API, the web page and MCP at /mcp, on this machine by default.

This module has the listening address: allowed Host names, token rules, and the listening socket.
"""

from __future__ import annotations

import re
import socket
from dataclasses import field
from functools import cached_property, partial
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from marklight.errors import UsageError
from marklight.lazy import dataclass

if TYPE_CHECKING:
    from marklight.library.configuration import Serve


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine that no DNS record can redirect."""
WILDCARDS = ("0.0.0.0", "::")
"""Addresses that bind to all interfaces."""
HTTP_PORT = 80
"""Browsers omit this port in the Host header."""
BACKLOG = 128
_HOST = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
"""A name or an address, with or without a port."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9_.-]+(?::\d{1,5})?")
"""An origin as browsers send it: no path, no wildcard, and not `null`, which any page can have."""


@dataclass(frozen=True)
class Address:
    """A listening address and its bearer token, which every address but loopback needs."""

    host: str = "127.0.0.1"
    port: int = 7433
    token: str = field(default="", repr=False)
    """Bearer token; empty means no authentication."""
    allow_hosts: tuple[str, ...] = ()
    """Further accepted hosts; without a port, our own one is meant."""
    allow_origins: tuple[str, ...] = ()
    """Origins other than our own whose requests are accepted."""
    cookie_key: str = field(default_factory=partial(token_urlsafe, 32), repr=False)
    """Value of the login cookie; a browser sends cookies to every port of a host, so it is not the token."""

    def __post_init__(self) -> None:
        if not self.host.strip():
            # The system would bind to all interfaces.
            raise UsageError("The address to listen on is empty", "Use for example 127.0.0.1")
        if not self.token and not is_loopback(self.host):
            raise UsageError(
                f"Other machines can reach {self.host}, so a token is required",
                "Set one with --token, or listen on 127.0.0.1",
            )
        for name, values, form, example in (
            ("serve.allow_hosts", self.allow_hosts, _HOST, "host.docker.internal"),
            ("serve.allow_origins", self.allow_origins, _ORIGIN, "app://obsidian.md"),
        ):
            if wrong := [value for value in values if not form.fullmatch(value)]:
                raise UsageError(
                    f"Invalid value in {name}: {wrong[0]!r}", f"Use the form {example}"
                )
            if values and not self.token:
                # Without one, every page and every DNS record of these names could read the documents.
                raise UsageError(f"{name} is set, so a token is required", "Set one with --token")
        if not all(char.isprintable() and not char.isspace() for char in self.token):
            raise UsageError(
                "The token contains spaces or control characters", "Use letters and digits"
            )

    @cached_property
    def host_names(self) -> frozenset[str]:
        """Return the accepted values of the Host header."""
        complete = {host for host in self.allow_hosts if re.search(r"[^:]:\d+$", host)}
        hosts = (*LOOPBACK, self.host, *(set(self.allow_hosts) - complete))
        names = frozenset(name for host in hosts for name in self.with_port(host))
        return names | {host.lower() for host in complete}

    def with_port(self, host: str) -> tuple[str, ...]:
        """Return the forms in which a client may write a host with our port."""
        bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
        full = f"{bracketed}:{self.port}".lower()
        return (full, bracketed.lower()) if self.port == HTTP_PORT else (full,)

    @property
    def is_wildcard(self) -> bool:
        """Return true if all interfaces of this machine are bound."""
        return self.host in WILDCARDS

    @property
    def url(self) -> str:
        """Return the URL for a browser on this machine."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else "::1" if self.host == "::" else self.host
        return f"http://{self.with_port(host)[0]}"


def configured_address(serve: Serve, port: int) -> Address:
    """Return the address in the settings, with another port."""
    return Address(serve.host, port, serve.token, serve.allow_hosts, serve.allow_origins)


def is_loopback(host: str) -> bool:
    """Return true if only this machine can reach the host."""
    if host.lower() in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, which may resolve to any address
        return False


def check_host(host: str) -> None:
    """Raise UsageError unless the host is a name or an address of this machine."""
    if is_loopback(host) or host in WILDCARDS or not host.strip():
        return
    try:
        family, *_, address = socket.getaddrinfo(
            host.strip("[]"), 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{host} is not an address of this machine ({reason})",
            "Use 127.0.0.1 for this machine only, or 0.0.0.0 for all its addresses",
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    try:
        family, *_, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only on sockets with this protocol number; without it the second
        # part of every response waits 40 ms for the client's acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"Invalid address to listen on: {host} ({error})") from None
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # else two servers can share a port on Windows
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}",
            "Choose another port with --port; 0 takes a free one",
        ) from None
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    """Return the port of a listening socket, which the system may have chosen."""
    return int(listener.getsockname()[1])
