"""A server as the settings describe it: where it is, what it is given, how long it is waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from marklight.errors import SettingsError
from marklight.models.remote import KINDS, Kind
from marklight.models.remote.key import Key

OLLAMA = "http://127.0.0.1:11434"
"""Where Ollama listens unless told otherwise; on this machine, so that it may be a default."""


@dataclass(frozen=True, slots=True)
class Server:
    """One model on one server."""

    kind: Kind
    model: str
    address: str
    """As the user knows it, to be shown."""
    base: str
    """What paths are put behind."""
    key: Key = field(compare=False)
    batch_texts: int
    timeout_seconds: float
    # A re-ranker has none of these. What is usual for an embedder, its settings say.
    batch_characters: int = 0
    query_seconds: float = 0.0
    retries: int = 0
    query_prefix: str = ""
    passage_prefix: str = ""
    dimension: int = 0
    token_limit: int = 0
    threads: int | None = None

    @property
    def name(self) -> str:
        """What the settings call it."""
        return f"{self.kind}:{self.model}"

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that no text leaves it."""
        return is_loopback(self.address)

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, or no address at all
        return False


def named(table: str, name: str, address: str) -> tuple[Kind, str, str, str]:
    """Kind, model, address and base of a remote model; else an error that says what is wrong."""
    kind, _, model = name.partition(":")
    if kind not in KINDS or not model.strip() or not model.isprintable():
        raise SettingsError(
            f"{table}.name = {name!r} names no model", "Write openai:MODEL or ollama:MODEL"
        )
    if not address and kind == "openai":
        # No default: who forgets the address of their own server would send their notes to another's.
        raise SettingsError(
            f"{table}.address is missing: where is {name}?",
            f'For example {table}.address = "http://127.0.0.1:8080" or "https://api.openai.com/v1"',
        )
    address = (address or OLLAMA).rstrip("/")
    path = _demand_address(table, address)
    base = address if path or kind == "ollama" else f"{address}/v1"
    return kind, model.strip(), address, base


def _demand_address(table: str, address: str) -> str:
    """The path of an address; errors do not repeat one that may hold a password."""
    hint = 'Write it as "http://127.0.0.1:8080" or "https://example.com/v1"'
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise SettingsError(f"{table}.address is no address", hint) from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SettingsError(
            f"{table}.address holds more than an address: a name, a password or a question mark",
            f"A key comes from {table}.key_variable or {table}.key_command",
        )
    plain = address.isascii() and address.isprintable() and " " not in address
    if parts.scheme not in ("http", "https") or not host or not plain:
        raise SettingsError(f"{table}.address is no address of a server: {address!r}", hint)
    return parts.path
