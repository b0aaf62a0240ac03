"""Settings of the embedding model and the re-ranker: names, servers, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from marklight.errors import SettingsError
from marklight.models.record import is_remote
from marklight.settings import ABOVE_ZERO, Within

if TYPE_CHECKING:
    from marklight.models.remote.server import Server

MIN_TOKENS = 32
"""Smallest token limit of a model: a title and a sentence."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that embeds passages and queries."""

    name: str = "granite-embedding-30m-english"
    """Name of a known, pulled or imported model, a folder, `none` for keyword search only, or a model on a server: `openai:NAME` or `ollama:NAME`."""
    threads: Annotated[int | None, Within(1)] = None
    """Threads for embedding; default: all cores. With a server: concurrent requests; default: 2."""
    address: str = ""
    """Address of the server, such as `https://example.com/v1`; default for Ollama: this machine. This setting and those below are for models on a server."""
    key_variable: str = ""
    """Environment variable that contains the server's API key; the key itself never belongs in settings."""
    key_command: str = ""
    """Command that prints the API key, such as `pass show openai`; it runs without a shell."""
    query_prefix: str = ""
    """Text that the model expects before a query."""
    passage_prefix: str = ""
    """Text that the model expects before a passage."""
    dimension: Annotated[int, Within(0, 65_536)] = 0
    """Dimension of the vectors, for servers that can shorten them; 0 keeps the model's own."""
    token_limit: Annotated[int, Within(0, 10_000_000)] = 0
    """Maximum number of tokens of a text; 0 uses the limit that the server reports, else 512."""
    batch_texts: Annotated[int, Within(1, 2048)] = 32
    """Maximum number of texts in one request."""
    batch_characters: Annotated[int, Within(1, 10_000_000)] = 50_000
    """Maximum number of characters in one request; a single longer text is sent alone."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 60.0
    """Timeout of one request while passages are embedded."""
    query_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 10.0
    """Timeout for the vector of a query; after that, keyword search alone answers."""
    retries: Annotated[int, Within(0, 20)] = 3
    """How often a failed request is repeated, where that may help."""

    def __post_init__(self) -> None:
        if self.token_limit and self.token_limit < MIN_TOKENS:
            raise SettingsError(
                f"model.token_limit must be at least {MIN_TOKENS}, but is {self.token_limit}"
            )
        _check_server("model", self)

    @property
    def server(self) -> Server | None:
        """Return the server of the model; None for a model on this machine."""
        options = {name: getattr(self, name) for name in _SERVER_OPTIONS}
        return _server("model", self, {"threads": self.threads, **options})


@dataclass(frozen=True, slots=True)
class Reranking:
    """The cross-encoder that re-ranks results."""

    name: str = ""
    """Name of a pulled or imported model, a folder, or `openai:NAME` for a model on a server; if empty, only searches with `--rerank` are re-ranked."""
    threads: Annotated[int | None, Within(1)] = None
    """Threads for re-ranking; default: all cores."""
    address: str = ""
    """Address of the server, such as `https://example.com/v1`. This setting and those below are for models on a server."""
    key_variable: str = ""
    """Environment variable that contains the server's API key; the key itself never belongs in settings."""
    key_command: str = ""
    """Command that prints the API key; it runs without a shell."""
    batch_texts: Annotated[int, Within(1, 2048)] = 32
    """Maximum number of passages in one request; the first request has four, to measure the time per passage."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 5.0
    """Timeout of the first request; later ones get the rest of `search.rerank.budget_ms`."""

    def __post_init__(self) -> None:
        _check_server("reranker", self)

    @property
    def server(self) -> Server | None:
        """Return the server of the cross-encoder; None for a model on this machine."""
        options = {"batch_texts": self.batch_texts, "timeout_seconds": self.timeout_seconds}
        return _server("reranker", self, options)


_SERVER_OPTIONS = (
    *("query_prefix", "passage_prefix", "dimension", "token_limit"),
    *("batch_texts", "batch_characters", "timeout_seconds", "query_seconds", "retries"),
)
_DESTINATION = ("address", "key_variable", "key_command")
"""Settings that decide where texts and keys are sent."""


def _server(table: str, part: Model | Reranking, options: Mapping[str, Any]) -> Server | None:
    if not is_remote(part.name):
        return None
    from marklight.models.remote.server import Key, Server, parse_server

    kind, model, address, base = parse_server(table, part.name, part.address)
    key = Key(table, part.key_variable, part.key_command)
    return Server(kind, model, address, base, key, **options)


def _check_server(table: str, part: Model | Reranking) -> None:
    """Check the settings of a server, also if the model is local: a key must not be shown as a setting."""
    if not any(getattr(part, name) for name in _DESTINATION) and not is_remote(part.name):
        return
    from marklight.models.remote.server import Key, parse_server

    Key(table, part.key_variable, part.key_command)
    parse_server(table, part.name if is_remote(part.name) else "ollama:any", part.address)
