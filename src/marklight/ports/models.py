"""What models owe: text to vectors, and scores of passages for a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector


class Embedder(Protocol):
    """Text to vectors of length one."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever a vector would."""

    @property
    def dimension(self) -> int: ...

    @property
    def token_limit(self) -> int: ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each passage by the model's own tokenizer, prefix and special tokens included."""

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        """One row for each text, in order; batches inside are bounded by tokens."""

    def embed_query(self, text: str) -> Vector: ...


@runtime_checkable
class Patient(Protocol):
    """A model that may be waited for, such as one on a server."""

    def hurried(self, seconds: float) -> Embedder:
        """The same for a caller who has only so much time."""


@runtime_checkable
class Resting(Protocol):
    """A model that can give back its memory, such as one in this process."""

    def rest(self) -> None:
        """Until somebody needs it again."""


def in_haste(model: Embedder | None, seconds: float) -> Embedder | None:
    """The model as one asks it who has only so much time; most are never waited for."""
    asked: object = model
    return asked.hurried(seconds) if isinstance(asked, Patient) else model


class Reranker(Protocol):
    """Scores of passages for a question, higher is better."""

    @property
    def name(self) -> str: ...

    def score(self, question: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """One number in 0 to 1 for each passage, in order; fewer when the time is over, never none."""
