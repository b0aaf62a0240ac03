"""What every model is: a tokenizer and a graph, opened when first needed, once for all threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.errors import ModelError
from marklight.models.record import ModelRecord
from marklight.once import once

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_THREADS = 8
"""Every thread holds a batch's values, by estimate some 30 MB; not measured beyond two cores."""

MOST_CHARACTERS_A_TOKEN = 100
"""A text longer than this times the token limit is cut before it is tokenised, so that the time a
text takes is bounded; tokens that long do not occur outside of rulers such as `-----`."""


class Session(NamedTuple):
    """A graph that runs on one thread at a time, with what it takes beside the tokens, and gives."""

    run: Callable[..., list[Any]]
    feeds: tuple[str, ...]
    outputs: tuple[str, ...]


class Opened:
    """A model by its record and its two files, by whatever way they are found."""

    def __init__(
        self,
        record: ModelRecord,
        model: Callable[[], bytes | str],
        tokenizer: Callable[[], bytes],
        threads: int | None = None,
    ) -> None:
        self.record = record
        self.threads = _threads_for(threads)
        self._open_model = model
        self._open_tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    @once
    def tokenizer(self) -> Tokenizer:
        """The model's own, which neither pads nor cuts."""
        from tokenizers import Tokenizer

        data = self._open_tokenizer()
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers package raises nothing narrower
            raise ModelError(f"The tokenizer of {self.name} cannot be read: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @once
    def session(self) -> Session:
        """The graph."""
        return _open_session(self.name, self._open_model())

    def unload(self) -> None:
        """Give back what is open; whoever needs it next opens it again."""
        for part in ("session", "tokenizer"):
            self.__dict__.pop(part, None)


def _open_session(name: str, model: bytes | str) -> Session:
    # Read when it is loaded: its packages report their use to their maker unless told not to.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no root but this
        first = str(error).splitlines()[0][:200]
        raise ModelError(f"onnxruntime cannot open the model {name}: {first}") from error
    return Session(
        session.run,
        tuple(value.name for value in session.get_inputs() if value.name != "input_ids"),
        tuple(value.name for value in session.get_outputs()),
    )


def _threads_for(wanted: int | None) -> int:
    """As many as the settings say, else what this process may use."""
    if wanted:
        return wanted
    # A container has less than the machine, where the system tells.
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    return min(os.cpu_count() or 1, _MOST_THREADS)


def clean(text: str) -> str:
    """Lone surrogates cannot be handed to the tokenizer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
