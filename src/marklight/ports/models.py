"""Protocols of models: embedders turn text into vectors, rerankers score passages for a query, language models write."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector


class Embedder(Protocol):
    """Turns text into vectors of length one."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Return a digest that changes whenever a vector would."""

    @property
    def dimension(self) -> int: ...

    @property
    def token_limit(self) -> int: ...

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages that the model knows, as ISO 639-1 codes; empty if that is not known."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each passage, prefix and special tokens included."""

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """Return one row for each text, in order; batches are bounded by tokens."""

    def embed_query(self, text: str) -> Vector: ...

    def with_time_limit(self, seconds: float) -> Embedder:
        """Return the same model for a caller that waits at most this long; a local model returns itself."""


class Reranker(Protocol):
    """Scores passages for a query; higher is better."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """Return one score from 0 to 1 for each passage, in order; fewer when time runs out, at least one."""


class Prompt(NamedTuple):
    """Input of a language model."""

    instructions: str
    """The system prompt."""
    text: str
    """The message of the user."""
    max_tokens: int
    """Maximum size of the response."""


class LanguageModel(Protocol):
    """Writes a response to a prompt."""

    @property
    def name(self) -> str: ...

    def generate(
        self, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> Generator[str, None, None]:
        """Yield the response piece by piece; raise ModelServerError if it is incomplete or there is none."""


@runtime_checkable
class Unloadable(Protocol):
    """A model that can free its memory, such as one in this process."""

    def unload(self) -> None:
        """Free the memory; the next call loads the model again."""
