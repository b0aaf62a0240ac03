"""Run ONNX models with onnxruntime: sentence embeddings in batches of one length, and scores of pairs by a cross-encoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from marklight.concurrency import once
from marklight.errors import ModelError
from marklight.models.record import File, ModelRecord
from marklight.models.store import file_problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

    from marklight.model import Matrix, Vector

MAX_THREADS = 8
"""Every thread holds one batch, about 30 MB by estimate; not measured beyond two cores."""

MAX_CHARACTERS_PER_TOKEN = 100
"""A text longer than this times the token limit is truncated before tokenization, so that its time is
bounded; tokens that long occur only in rulers such as `-----`."""

BATCH_TOKENS = 1024
"""Tokens in one run at most. More takes memory in every thread and gains nothing: on a quiet
machine 512, 2048 and 8192 are within 4 % of it, single texts within 6 % (benchmarks/embedding.py)."""


class Session(NamedTuple):
    """An onnxruntime session that runs on one thread, its inputs besides `input_ids`, and its outputs."""

    run: Callable[..., list[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class OnnxModel:
    """A tokenizer and a session, each opened on first use, once for all threads."""

    def __init__(self, record: ModelRecord, folder: Path, threads: int | None = None) -> None:
        self.record = record
        self.folder = folder
        self.threads = thread_count(threads)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    @once
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, without padding or truncation."""
        from tokenizers import Tokenizer

        data = self._verified(self.record.files[-1:]).read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers package raises nothing narrower
            raise ModelError(f"The tokenizer of {self.name} cannot be read: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @once
    def session(self) -> Session:
        """The onnxruntime session."""
        # Weights may span several files.
        return _open_session(self.name, str(self._verified(self.record.files[:-1])))

    def _verified(self, files: Sequence[File]) -> Path:
        """Return the path of the first file; raise if one has changed since it was pulled or imported."""
        for file in files:
            problem = "" if self.record.package else file_problem(self.folder, file)
            if problem:
                raise ModelError(problem, f"Pull or import {self.name} again")
        return self.folder / files[0].path

    def unload(self) -> None:
        """Close the session and the tokenizer; the next call opens them again."""
        for part in ("session", "tokenizer"):
            self.__dict__.pop(part, None)


class OnnxEmbedder(OnnxModel):
    """A sentence-embedding model."""

    @once
    def fingerprint(self) -> str:
        return self.record.fingerprint  # kept: a digest over many fields, read by several stages

    @property
    def dimension(self) -> int:
        return self.record.dimension

    @property
    def token_limit(self) -> int:
        return self.record.token_limit

    @property
    def languages(self) -> tuple[str, ...]:
        return self.record.languages

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        prefixed = [self.record.passage_prefix + replace_surrogates(text) for text in texts]
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(prefixed)]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._embed([self.record.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self._embed([self.record.query_prefix + text])[0]
        return vector

    def with_time_limit(self, seconds: float) -> Self:  # noqa: ARG002
        return self  # nothing to wait for

    def _embed(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), np.float32)
        if not texts:
            return rows
        tokens = self.tokenize(texts)
        grouped = list(batches([len(ids) for ids in tokens]))

        def fill(positions: list[int]) -> None:
            rows[positions] = self._run([tokens[position] for position in positions])

        if len(grouped) == 1:  # most often a query
            fill(grouped[0])
            return rows
        # Several batches at once, one thread each, are faster than one batch on all threads, where every
        # operation waits for the slowest thread (benchmarks/embedding.py: 1.2 times on idle cores, 1.7 on busy ones).
        pool = ThreadPoolExecutor(min(self.threads, len(grouped)))
        try:
            for _ in pool.map(fill, grouped):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        return rows

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated at the token limit."""
        most = self.token_limit * MAX_CHARACTERS_PER_TOKEN
        shortened = [replace_surrogates(text[:most]) for text in texts]
        return [self._truncate(each) for each in self.tokenizer.encode_batch_fast(shortened)]

    def _truncate(self, encoding: Encoding) -> list[int]:
        ids: list[int] = encoding.ids
        if len(ids) > self.token_limit:
            end = self._closing_tokens
            ids = ids[: self.token_limit - end] + ids[len(ids) - end :]
        # A session needs at least one token, also where the tokenizer adds no special ones.
        return ids or [0]

    def _run(self, tokens: list[list[int]]) -> Matrix:
        import numpy as np

        ids = np.array(tokens, np.int64)
        session = self.session
        feeds = {"input_ids": ids}
        for name in session.inputs:
            # No text is padded, so every token counts and all are of type 0.
            feeds[name] = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
        # Exports with built-in pooling use this output name; others return one vector per token first.
        pooled = "sentence_embedding" in session.outputs
        output = "sentence_embedding" if pooled else session.outputs[0]
        (value,) = session.run([output], feeds)
        vectors: Matrix = np.asarray(value, np.float32)
        if vectors.ndim == 3:
            vectors = vectors[:, 0] if self.record.pooling == "cls" else vectors.mean(axis=1)
        if vectors.shape[1:] != (self.dimension,):
            raise ModelError(
                f"The model {self.name} returns {vectors.shape[-1]} numbers per vector, not {self.dimension}",
                "Correct `dimension` in its description",
            )
        if self.record.normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    @once
    def _closing_tokens(self) -> int:
        """Number of special tokens at the end of every text; a truncated text keeps them."""
        mask: list[int] = self.tokenizer.encode("a").special_tokens_mask
        return next((at for at, special in enumerate(reversed(mask)) if not special), 0)


class Pair(NamedTuple):
    """The tokens of a query and one passage, as the model reads them."""

    ids: list[int]
    types: list[int]
    """0 for tokens of the query, 1 for tokens of the passage."""


class CrossEncoder(OnnxModel):
    """A cross-encoder; its files are opened when the first pair is scored."""

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """Return one score from 0 to 1 for each passage, in order; fewer when time runs out, at least one.

        The time starts when the model is open, else the first query would lose its budget to loading.
        """
        if not passages:
            return []
        tokenizer, _ = self.tokenizer, self.session
        began = perf_counter()
        limit = self.record.token_limit
        most = limit * MAX_CHARACTERS_PER_TOKEN
        first = replace_surrogates(query[:most])
        encodings = tokenizer.encode_batch(
            [(first, replace_surrogates(passage[:most])) for passage in passages]
        )

        def score_in_time(position: int) -> float | None:
            late = (perf_counter() - began) * 1000 >= budget_ms
            return None if late and position else self._run(fit(encodings[position], limit))

        # One pair per run, so that nothing is padded: with a MiniLM of 6 layers and passages of 210 tokens,
        # runs of up to 512 and 1024 tokens took 1.1 and 1.5 times as long, and short ones gained only 5 %.
        # Pairs run in parallel, one thread each, for the same reason as batches.
        pool = ThreadPoolExecutor(min(self.threads, len(passages)))
        scores: list[float] = []
        try:
            # Pairs start in order, so those that started in time are the first ones.
            for score in pool.map(score_in_time, range(len(passages))):
                if score is None:
                    break
                scores.append(score)
        finally:
            pool.shutdown(cancel_futures=True)
        return scores

    def _run(self, pair: Pair) -> float:
        import numpy as np

        session = self.session
        feeds = {"input_ids": pair.ids}
        for name in session.inputs:
            if name not in ("attention_mask", "token_type_ids"):
                raise ModelError(
                    f"The model {self.name} needs the input {name}, which is not supported"
                )
            feeds[name] = pair.types if name == "token_type_ids" else [1] * len(pair.ids)
        try:
            (value,) = session.run(
                [session.outputs[0]],
                {name: np.array([row], np.int64) for name, row in feeds.items()},
            )
        except Exception as error:  # onnxruntime's errors share no narrower base class
            first = str(error).splitlines()[0][:200]
            raise ModelError(f"The model {self.name} cannot score a pair: {first}") from error
        return self._probability(np.asarray(value, np.float64))

    def _probability(self, logits: NDArray[np.float64]) -> float:
        """Turn the model's one or two logits into a score from 0 to 1 (sigmoid or softmax)."""
        import numpy as np

        if logits.ndim > 2 or logits.size not in (1, 2):
            raise ModelError(
                f"The model {self.name} is not a cross-encoder: it returns "
                f"{' x '.join(map(str, logits.shape[1:]))} numbers per pair, not 1 or 2"
            )
        if not np.isfinite(logits).all():
            raise ModelError(f"The model {self.name} returns a score that is not a number")
        # Of two logits the last is the one for "relevant".
        first, last = logits.flat[0], logits.flat[-1]
        return float(np.exp(-np.logaddexp(0.0, -(last - first if logits.size == 2 else last))))


def fit(encoding: Encoding, limit: int) -> Pair:
    """Truncate a pair at the token limit: the passage first, the query only beyond half of the limit."""
    sequences = encoding.sequence_ids
    query = [at for at, sequence in enumerate(sequences) if sequence == 0]
    passage = [at for at, sequence in enumerate(sequences) if sequence == 1]
    room = max(0, limit - (len(sequences) - len(query) - len(passage)))
    query_room = max(room // 2, room - len(passage))
    dropped = {*query[query_room:], *passage[max(0, room - len(query[:query_room])) :]}
    kept = [at for at in range(len(sequences)) if at not in dropped]
    ids, types = encoding.ids, encoding.type_ids
    # A session needs at least one token, also where the tokenizer adds no special ones.
    return Pair([ids[at] for at in kept] or [0], [types[at] for at in kept] or [0])


def batches(lengths: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Yield positions of texts that share a run: all of one length, longest first."""
    positions = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    batch: list[int] = []
    for position in positions:
        length = lengths[position]
        if batch and (length != lengths[batch[0]] or (len(batch) + 1) * length > most):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which the tokenizer cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _open_session(name: str, model: str) -> Session:
    # Must be set before the import: the package sends telemetry otherwise.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no narrower base class
        first = str(error).splitlines()[0][:200]
        raise ModelError(f"onnxruntime cannot open the model {name}: {first}") from error
    return Session(
        session.run,
        tuple(value.name for value in session.get_inputs() if value.name != "input_ids"),
        tuple(value.name for value in session.get_outputs()),
    )


def thread_count(wanted: int | None) -> int:
    """Return the configured number of threads, else the number of usable cores, at most MAX_THREADS."""
    if wanted:
        return wanted
    # A container may have fewer cores than the machine.
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)
