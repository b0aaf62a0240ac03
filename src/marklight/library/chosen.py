"""Settings of the models: which ones, and where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from marklight.errors import SettingsError
from marklight.models.record import is_remote
from marklight.settings import ABOVE_ZERO, Within

if TYPE_CHECKING:
    from marklight.models.remote.server import Server

LEAST_TOKENS = 32
"""Less than a title and a sentence is no passage."""


@dataclass(frozen=True, slots=True)
class Model:
    """Which model turns text into vectors."""

    name: str = "granite-embedding-30m-english"
    """A known name, a pulled or imported one, a folder, `none` for keyword search only, or a model on a server: `openai:NAME` or `ollama:NAME`."""
    threads: Annotated[int | None, Within(1)] = None
    """Threads for embedding; all cores when not given. With a server, requests at once; 2 when not given."""
    address: str = ""
    """Where the server is, as `https://example.com/v1`; Ollama's is this machine when not given. This and all below are for a server."""
    key_variable: str = ""
    """The environment variable that holds the server's key; the key itself stands in no setting."""
    key_command: str = ""
    """A command that prints the key, as `pass show openai`; it is run without a shell."""
    query_prefix: str = ""
    """What the model wants before a question."""
    passage_prefix: str = ""
    """What the model wants before a passage."""
    dimension: Annotated[int, Within(0, 65_536)] = 0
    """Numbers in a vector, for servers that can shorten theirs; 0 takes them as they come."""
    token_limit: Annotated[int, Within(0, 10_000_000)] = 0
    """Tokens that the model takes; 0 is what the server tells, else 512."""
    batch_texts: Annotated[int, Within(1, 2048)] = 32
    """Texts in one request at most."""
    batch_characters: Annotated[int, Within(1, 10_000_000)] = 50_000
    """Characters in one request at most; one text is never too many."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 60.0
    """How long one request may take while passages are embedded."""
    query_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 10.0
    """How long a search waits for the vector of its question before words alone answer."""
    retries: Annotated[int, Within(0, 20)] = 3
    """How often a request is tried again where that may help."""

    def __post_init__(self) -> None:
        if self.token_limit and self.token_limit < LEAST_TOKENS:
            raise SettingsError(
                f"model.token_limit must be at least {LEAST_TOKENS}, but is {self.token_limit}"
            )
        _demand_server("model", self)

    @property
    def server(self) -> Server | None:
        """The server that the name is for; None for a model on this machine."""
        given = {name: getattr(self, name) for name in _SERVER}
        return _server("model", self, {"threads": self.threads, **given})


@dataclass(frozen=True, slots=True)
class Reranking:
    """Which cross-encoder re-ranks."""

    name: str = ""
    """A name that was pulled or imported, a folder, or `openai:NAME` for a model on a server; with none, only a search that asks for it re-ranks."""
    threads: Annotated[int | None, Within(1)] = None
    """Threads for re-ranking; all cores when not given."""
    address: str = ""
    """Where the server is, as `https://example.com/v1`. This and all below are for a server."""
    key_variable: str = ""
    """The environment variable that holds the server's key; the key itself stands in no setting."""
    key_command: str = ""
    """A command that prints the key; it is run without a shell."""
    batch_texts: Annotated[int, Within(1, 2048)] = 32
    """Passages in one request at most; the first has four, which tell how long more would take."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 5.0
    """How long the first request may take; the others have what is left of `search.rerank.budget_ms`."""

    def __post_init__(self) -> None:
        _demand_server("reranker", self)

    @property
    def server(self) -> Server | None:
        """The server that the name is for; None for a model on this machine."""
        own = {"batch_texts": self.batch_texts, "timeout_seconds": self.timeout_seconds}
        return _server("reranker", self, own)


_SERVER = (
    *("query_prefix", "passage_prefix", "dimension", "token_limit"),
    *("batch_texts", "batch_characters", "timeout_seconds", "query_seconds", "retries"),
)
_OWN = ("address", "key_variable", "key_command")
"""What says where texts and keys go."""


def _server(table: str, part: Model | Reranking, given: Mapping[str, Any]) -> Server | None:
    if not is_remote(part.name):
        return None
    from marklight.models.remote.server import Key, Server, parse_server

    kind, model, address, base = parse_server(table, part.name, part.address)
    key = Key(table, part.key_variable, part.key_command)
    return Server(kind, model, address, base, key, **given)


def _demand_server(table: str, part: Model | Reranking) -> None:
    """What is said of a server makes sense, whichever model is named: a key must not be shown as a setting."""
    if not any(getattr(part, name) for name in _OWN) and not is_remote(part.name):
        return
    from marklight.models.remote.server import Key, parse_server

    Key(table, part.key_variable, part.key_command)
    parse_server(table, part.name if is_remote(part.name) else "ollama:any", part.address)
