"""Where we are reached, under which names, and what must be shown to come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address

from marklight.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine that no other machine can take over."""
EVERYWHERE = ("0.0.0.0", "::")
"""Addresses that mean all of a machine's own."""
PLAIN_PORT = 80
"""Left out of names by every browser."""


@dataclass(frozen=True)
class Address:
    """An address with its rules; one beyond this machine demands a token."""

    host: str = "127.0.0.1"
    port: int = 7433
    token: str = field(default="", repr=False)
    """What everybody must show; empty asks for nothing."""

    def __post_init__(self) -> None:
        if not self.host.strip():
            # To the system it would mean every address of this machine.
            raise UsageError("the address to serve at is empty", "Such as 127.0.0.1")
        if not self.token and not is_loopback(self.host):
            raise UsageError(
                f"{self.host} can be reached from other machines, which takes a token",
                "Give one with --token, or serve at 127.0.0.1",
            )
        if not all(sign.isprintable() and not sign.isspace() for sign in self.token):
            raise UsageError("a token is one word", "Use letters and digits, the more the better")

    @cached_property
    def names(self) -> frozenset[str]:
        """What a client may call us in its Host header."""
        return frozenset(name for host in (*LOOPBACK, self.host) for name in self.named(host))

    def named(self, host: str) -> tuple[str, ...]:
        """A host as it is written with our port."""
        plain = f"[{host}]" if ":" in host and not host.startswith("[") else host
        with_port = f"{plain}:{self.port}".lower()
        return (with_port, plain.lower()) if self.port == PLAIN_PORT else (with_port,)

    @property
    def everywhere(self) -> bool:
        """Whether any of this machine's addresses leads here."""
        return self.host in EVERYWHERE

    @property
    def url(self) -> str:
        """Where a browser on this machine finds us."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else "::1" if self.host == "::" else self.host
        return f"http://{self.named(host)[0]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host.lower() in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False
