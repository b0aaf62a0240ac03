"""A model server as configured: address, limits, timeouts, and its API key, which is never shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from ipaddress import ip_address
from threading import Lock
from urllib.parse import urlsplit

from marklight.errors import ModelServerError, SettingsError
from marklight.models.record import SERVER_KINDS, ServerKind

OLLAMA = "http://127.0.0.1:11434"
"""Ollama's default address; a loopback address, so it may be ours too."""
COMMAND_SECONDS = 30.0
"""Time limit of the command that prints the key; some wait for a person."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VENDOR_KEY = re.compile(
    r"(sk|pk|hf|gsk|jina|pa|voyage|xai|nvapi)[-_][\w-]{12}|AIza\w{12}", re.ASCII
)
"""Prefixes of the API keys of common vendors."""
_PRINT_COMMANDS = ("echo", "printf")
"""Commands that print their arguments; an argument of another command may be the name of an entry."""
_KEY_LENGTH = 20
"""Length from which a run of both letters and digits may be a key; hand-set, not measured."""


class Key:
    """Source of an API key: a variable or a command, read on first use. The key is in no message, repr or file."""

    def __init__(self, table: str, variable: str = "", command: str = "") -> None:
        self._table = table
        self._variable, self._command = variable, command
        self._lock = Lock()
        self._read: str | None = None
        if variable and command:
            raise SettingsError(
                f"{table}.key_variable and {table}.key_command are both set", "Remove one of them"
            )
        is_name = _VARIABLE.fullmatch(variable) and not looks_like_key(variable)
        if variable and not is_name and variable not in os.environ:
            raise _key_in_settings(table, "key_variable")
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise SettingsError(f"{table}.key_command cannot be read: {error}") from None
        prints = bool(self._words) and os.path.basename(self._words[0]) in _PRINT_COMMANDS
        if any(map(looks_like_key if prints else is_vendor_key, self._words)):
            raise _key_in_settings(table, "key_command")

    def __repr__(self) -> str:
        return f"Key({self._variable or (self._words or ['none'])[0]!r})"

    def header(self) -> dict[str, str]:
        """Return the Authorization header; empty without a key."""
        key = self.read()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def read(self) -> str:
        """Return the key; empty if none is configured."""
        with self._lock:
            if self._read is None:
                self._read = self._fetch()
            return self._read

    def redact(self, text: str) -> str:
        """Remove the key from a text of the server; some servers repeat it in errors."""
        key = self._read
        return text.replace(key, "…") if key else text

    def _fetch(self) -> str:
        if self._variable:
            key = os.environ.get(self._variable, "").strip()
            source = f"the variable {self._variable} ({self._table}.key_variable)"
        elif self._words:
            key = self._run().strip()
            source = f"the output of {self._words[0]} ({self._table}.key_command)"
        else:
            return ""
        if not key:
            raise ModelServerError(f"{source} is empty", "It must contain the API key")
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ModelServerError(
                f"{source} is not an API key",
                "A key is one word of letters, digits and punctuation",
            )
        return key

    def _run(self) -> str:
        program = self._words[0]
        command = f"{program} ({self._table}.key_command)"
        try:
            done = subprocess.run(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # From None: the original error contains the output so far, which may be the key.
            raise ModelServerError(
                f"{command} took more than {COMMAND_SECONDS:.0f} s", "Run it in a terminal"
            ) from None
        except OSError as error:
            raise ModelServerError(f"{command} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise ModelServerError(
                f"{command} failed with status {done.returncode}", "Run it in a terminal"
            )
        return done.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Server:
    """One model on one server."""

    kind: ServerKind
    model: str
    address: str
    """The address as the user wrote it, for messages."""
    base: str
    """The URL that paths are appended to."""
    key: Key = field(compare=False)
    batch_texts: int
    timeout_seconds: float
    # A reranker has none of these; an embedder's defaults are in its settings.
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
        """Return the name as written in the settings."""
        return f"{self.kind}:{self.model}"

    @property
    def is_local(self) -> bool:
        """Return whether the server is on this machine, so that no text leaves it."""
        return is_loopback(self.address)

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a host name, or not an address
        return False


def parse_server(table: str, name: str, address: str) -> tuple[ServerKind, str, str, str]:
    """Return kind, model, address and base URL of a model on a server; raise SettingsError if invalid."""
    kind, _, model = name.partition(":")
    if kind not in SERVER_KINDS or not model.strip() or not model.isprintable():
        raise SettingsError(
            f"{table}.name = {name!r} is not a model on a server",
            "Write openai:MODEL or ollama:MODEL",
        )
    if not address and kind == "openai":
        # No default: whoever forgets the address of their own server would send their notes to a stranger's.
        raise SettingsError(
            f"{table}.address is missing: {name} needs the address of its server",
            f'For example {table}.address = "http://127.0.0.1:8080" or "https://api.openai.com/v1"',
        )
    address = (address or OLLAMA).rstrip("/")
    path = _check_address(table, address)
    base = address if path or kind == "ollama" else f"{address}/v1"
    return kind, model.strip(), address, base


def _check_address(table: str, address: str) -> str:
    """Return the path of an address; errors do not repeat one that may contain a password."""
    hint = 'Write it as "http://127.0.0.1:8080" or "https://example.com/v1"'
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise SettingsError(f"{table}.address is not a URL", hint) from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SettingsError(
            f"{table}.address contains a user name, a password, a query or a fragment",
            f"Give the API key by {table}.key_variable or {table}.key_command",
        )
    plain = address.isascii() and address.isprintable() and " " not in address
    if parts.scheme not in ("http", "https") or not host or not plain:
        raise SettingsError(f"{table}.address is not an http or https URL: {address!r}", hint)
    return parts.path


def looks_like_key(text: str) -> bool:
    """Return whether a word may be an API key. A false positive costs a message, a false negative leaks a key."""
    return is_vendor_key(text) or any(
        re.search(r"\d", run) and re.search(r"[A-Za-z]", run)
        for run in re.findall(rf"[A-Za-z0-9]{{{_KEY_LENGTH},}}", text)
    )


def is_vendor_key(text: str) -> bool:
    """Return whether a word starts as the API keys of common vendors do."""
    return len(text) >= _KEY_LENGTH and bool(_VENDOR_KEY.match(text))


def _key_in_settings(table: str, name: str) -> SettingsError:
    return SettingsError(
        f"{table}.{name} seems to contain the API key itself (not shown here)",
        f"Set {table}.key_variable to the name of an environment variable that contains it, or "
        f"{table}.key_command to a command that prints it; replace a key that was in a file",
    )
