"""Models on a server with OpenAI's or Ollama's API, used only if the settings name one: the settings of the server, its API key,
which is never shown, and its state: model info and last failure.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from contextlib import suppress
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from marklight.errors import ModelServerError, SettingsError
from marklight.lazy import dataclass
from marklight.model import digest
from marklight.models.record import SERVER_KINDS, ServerKind
from marklight.ports import Prompt
from marklight.private_files import cache_folder, write_private

if TYPE_CHECKING:
    from marklight.models.record import Kind
    from marklight.models.store import ModelRow


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
RETRY_AFTER_SECONDS = 30.0
"""Time without requests after a slow failure (circuit breaker); else every query would wait again."""
SLOW_SECONDS = 1.0
"""Faster failures are not remembered: trying again costs less than ignoring a server that is back."""


class Key:
    """Source of an API key: a variable or a command, read on first use. The key is in no message, repr or file."""

    def __init__(self, table: str, variable: str = "", command: str = "") -> None:
        self._table = table
        self._variable = variable
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


class ModelInfo(Struct, frozen=True):
    """Properties of a model as its server reports them."""

    dimension: Annotated[int, Meta(gt=0)]
    token_limit: int = 0
    """0 if not reported."""
    digest: str = ""
    """Digest of the weights, if reported."""


class Failure(Struct, frozen=True):
    """The last slow failure of a server."""

    at: float
    reason: str


class _Stored(Struct):
    """State of a server, stored for the next process."""

    info: ModelInfo | None = None
    failure: Failure | None = None


class ServerState:
    """State of a server in a small file in the cache folder; if it cannot be written, the state lasts for this process."""

    def __init__(self, server: Server, cache_dir: Path | None = None) -> None:
        key = digest(server.kind, server.base, server.model, str(server.dimension), size=8)
        self._file = (cache_dir or cache_folder()) / "models" / "remote" / f"{key}.json"
        self._lock = Lock()
        self._read: _Stored | None = None

    @property
    def _stored(self) -> _Stored:
        """Return the state, read once; an unreadable file has none."""
        if self._read is None:
            self._read = _Stored()
            with suppress(OSError, ValueError, RecursionError):
                self._read = msgspec.json.decode(self._file.read_bytes(), type=_Stored)
        return self._read

    @property
    def info(self) -> ModelInfo | None:
        """Return the stored model info; None if there is none."""
        with self._lock:
            return self._stored.info

    def check_available(self) -> None:
        """Raise the last failure if it is recent; afterwards let one caller try again."""
        with self._lock:
            failure = self._stored.failure
            if failure is None:
                return
            past = time.time() - failure.at
            if 0 <= past < RETRY_AFTER_SECONDS:
                raise ModelServerError(
                    f"{failure.reason} ({past:.0f} s ago)",
                    f"The next attempt is in {RETRY_AFTER_SECONDS - past:.0f} s",
                )
            self._stored.failure = Failure(time.time(), failure.reason)

    def record_failure(self, reason: str, seconds: float) -> None:
        """Record that the server failed after this many seconds."""
        self._store(failure=Failure(time.time(), reason) if seconds >= SLOW_SECONDS else None)

    def record_success(self, info: ModelInfo | None = None) -> None:
        """Clear the recorded failure, and store what the server reports now."""
        self._store(failure=None, **({"info": info} if info else {}))

    def first_use(self) -> bool:
        """Return True once per server, for the notice that texts are sent to it."""
        file = self._file.with_suffix(".told")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError:
            pass  # a notice twice rather than never
        return True

    def _store(self, **changes: ModelInfo | Failure | None) -> None:
        """Change the state, and its file if it differs."""
        with self._lock:
            before = self._stored
            self._read = msgspec.structs.replace(before, **changes)
            if self._read != before:
                with suppress(OSError):
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    write_private(self._file, msgspec.json.encode(self._read))


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


VERIFY_MS = 60_000.0
"""Time limit of the one reranking that `models verify` tries."""
VERIFY_PROMPT = Prompt("Answer in one word.", "Which colour has grass?", 16)
"""Sent to a language model by `models verify`; no text of the user's."""


def model_row(server: Server, kind: Kind, cache_dir: Path | None = None) -> ModelRow:
    """Return the line of `models list` for a configured server, without a request."""
    from marklight.models.remote.embedder import RemoteEmbedder
    from marklight.models.store import ModelRow

    embedder = RemoteEmbedder(server, cache_dir)
    info = embedder.state.info if kind == "embedder" else None
    return ModelRow(
        name=server.name,
        kind=kind,
        state=f"at {server.address}",
        usable=True,
        default=False,
        dimension=info.dimension if info else 0,
        token_limit=embedder.token_limit if kind == "embedder" else 0,
        licence="",
    )


def verify(server: Server, kind: Kind, cache_dir: Path | None = None) -> list[str]:
    """Send a request to a server, store its model info, and return the problems."""
    from marklight.models.remote.embedder import RemoteEmbedder
    from marklight.models.remote.reranker import RemoteReranker

    try:
        if kind == "embedder":
            RemoteEmbedder(server, cache_dir).learn()
        elif kind == "generator":
            from marklight.models.remote.generator import RemoteLanguageModel

            pieces = RemoteLanguageModel(server).generate(VERIFY_PROMPT, lambda: None)
            next(pieces)
        else:
            reranker = RemoteReranker(server, cache_dir)
            reranker.state.record_success()
            reranker.score("how do I undo a rollout", ["undo a rollout"], VERIFY_MS)
    except ModelServerError as error:
        return [str(error)]
    return []
