"""Run ONNX models with onnxruntime: sentence embeddings in batches of one length, and scores of pairs by a cross-encoder."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from marklight.errors import ModelError
from marklight.lazy import once
from marklight.models.record import File, ModelRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

    from marklight.model import Matrix, Vector

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_THREADS = 8
"""Every thread holds one batch, about 15 MB by estimate; not measured beyond two cores."""

MAX_CHARACTERS_PER_TOKEN = 100
"""A text longer than this times the token limit is truncated before tokenization, so that its time is
bounded; tokens that long occur only in rulers such as `-----`."""

BATCH_TOKENS = 512
"""Tokens in one run at most. More takes memory in every thread and gains nothing: indexing FastAPI's manual takes
275 MB with 1024 and 237 MB with 512, in the same time."""

BEGIN, END = 0, 2
_SPECIAL_IDS = {"<s>": BEGIN, "<pad>": 1, "</s>": END, "<unk>": 3, "<mask>": 50264}
_SPECIAL = re.compile(r"<s>|<pad>|</s>|<unk>|\s*<mask>", re.ASCII)

_WORD = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)
"""The words of GPT-2, over a text whose other characters are replaced by an ASCII character of their class."""

_CLASSES = "!a0\t"
"""Characters that replace others in the search for words: punctuation and the rest, letters, numbers, white space."""

MAX_CACHED_WORDS = 50_000
"""About 10 MB; Markdown repeats its words, so that nearly all of them are in the cache while a folder is indexed."""

_MANY_WORDS = 1_000
"""Words after which a dictionary of all merges pays: it takes 10 ms to fill, a search in the table 1 µs."""


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
        from marklight.models.store import check_tokenizers

        check_tokenizers(self.name)
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
        if not self.record.package:
            from marklight.models.store import file_problem

            for file in files:
                if problem := file_problem(self.folder, file):
                    raise ModelError(problem, f"Pull or import {self.name} again")
        return self.folder / files[0].path

    def unload(self) -> None:
        """Close the session and the tokenizer; the next call opens them again."""
        for part in ("session", "tokenizer"):
            self.__dict__.pop(part, None)


class OnnxEmbedder(OnnxModel):
    """A sentence-embedding model."""

    def __init__(self, record: ModelRecord, folder: Path, threads: int | None = None) -> None:
        super().__init__(record, folder, threads)
        self.dimension = record.dimension
        self.token_limit = record.token_limit
        self.languages = record.languages

    @once
    def fingerprint(self) -> str:
        return self.record.fingerprint  # kept: a digest over many fields, read by several stages

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        prefixed = [self.record.passage_prefix + replace_surrogates(text) for text in texts]
        return [len(ids) for ids in self._encode(prefixed)]

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

        # Several batches at once, one thread each, are faster than one batch on all threads, where every
        # operation waits for the slowest thread (benchmarks/embedding.py: 1.2 times on idle cores, 1.7 on busy ones).
        run_in_threads(fill, grouped, self.threads)
        return rows

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated at the token limit."""
        most = self.token_limit * MAX_CHARACTERS_PER_TOKEN
        shortened = [replace_surrogates(text[:most]) for text in texts]
        return [self._truncate(ids) for ids in self._encode(shortened)]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text, with special tokens."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]

    def _truncate(self, ids: list[int]) -> list[int]:
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

    @property
    def _closing_tokens(self) -> int:
        """Number of special tokens at the end of every text; a truncated text keeps them."""
        mask: list[int] = self.tokenizer.encode("a").special_tokens_mask
        return next((count for count, special in enumerate(reversed(mask)) if not special), 0)


class BundledEmbedder(OnnxEmbedder):
    """The bundled model, with a tokenizer of its own."""

    @once
    def _byte_pairs(self) -> BytePairTokenizer:
        return BytePairTokenizer((self.folder / self.record.files[-1].path).read_bytes())

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [self._byte_pairs.encode(text) for text in texts]

    @property
    def _closing_tokens(self) -> int:
        return 1

    def unload(self) -> None:
        super().unload()
        self.__dict__.pop("_byte_pairs", None)


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
        # They start in order, but two threads may read the clock in another order: the first late one ends the scores.
        scores = []
        for score in run_in_threads(score_in_time, range(len(passages)), self.threads):
            if score is None:
                break
            scores.append(score)
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
    query = [place for place, sequence in enumerate(sequences) if sequence == 0]
    passage = [place for place, sequence in enumerate(sequences) if sequence == 1]
    room = max(0, limit - (len(sequences) - len(query) - len(passage)))
    query_room = max(room // 2, room - len(passage))
    dropped = {*query[query_room:], *passage[max(0, room - len(query[:query_room])) :]}
    kept = [place for place in range(len(sequences)) if place not in dropped]
    ids, types = encoding.ids, encoding.type_ids
    # A session needs at least one token, also where the tokenizer adds no special ones.
    return Pair([ids[place] for place in kept] or [0], [types[place] for place in kept] or [0])


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


def run_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> list[Result]:
    """Call a function for each item, several at once; after an error, those that have not begun are left out."""
    if len(items) < 2:  # most often a query
        return list(map(function, items))
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(min(threads, len(items)))
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)


class _CharacterClasses(dict[int, str]):
    """Maps code points to ASCII characters of the same class, for `str.translate`."""

    def __init__(self, starts: Sequence[int]) -> None:
        self._starts = starts
        """Sorted: the first code point of each range, times four, plus its class."""

    def __missing__(self, point: int) -> str:
        start = self._starts[bisect_right(self._starts, point * 4 + 3) - 1]
        character = chr(point) if point < 128 else _CLASSES[start % 4]
        self[point] = character
        return character


class BytePairTokenizer:
    """Byte-level BPE of the bundled model: the same token ids as the package `tokenizers`, opened in milliseconds.

    Text is split at special tokens, then into words, and the bytes of each word are merged by rank (Sennrich et al. 2016,
    with the byte alphabet of GPT-2). `scripts/build_model.py` writes the table of merges and character classes, so that
    neither depends on the Unicode version of Python. Several threads may share it.
    """

    def __init__(self, table: bytes) -> None:
        numbers = memoryview(table).cast("I")
        count, pairs = numbers[0], 257
        self._byte_ids = numbers[1:pairs].tolist()
        self._pairs = numbers[pairs : pairs + count]
        """Sorted: left id << 16 | right id."""
        self._merges = numbers[pairs + count : pairs + 2 * count]
        """Rank << 16 | id of the merged token, for each pair."""
        self._classes = _CharacterClasses(numbers[pairs + 2 * count :])
        self._find: Callable[[int, int], int] = self._search
        """Returns the merge of a pair, or the second argument."""
        self._words: dict[str, list[int]] = {}

    def _search(self, pair: int, default: int) -> int:
        place = bisect_left(self._pairs, pair)
        found = place < len(self._pairs) and self._pairs[place] == pair
        return self._merges[place] if found else default

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text without lone surrogates."""
        plain = text if text.isascii() else text.translate(self._classes)
        ids, start = [BEGIN], 0
        if "<" in text:
            for match in _SPECIAL.finditer(plain):
                ids += self._encode_words(text[start : match.start()], plain[start : match.start()])
                ids.append(_SPECIAL_IDS[match[0].lstrip()])
                start = match.end()
        ids += self._encode_words(text[start:], plain[start:])
        ids.append(END)
        return ids

    def _encode_words(self, text: str, plain: str) -> list[int]:
        if text == plain:
            words = _WORD.findall(text)
        else:
            words = [text[match.start() : match.end()] for match in _WORD.finditer(plain)]
        cache = self._words
        ids: list[int] = []
        for word in words:
            merged = cache.get(word)
            if merged is None:
                merged = self._merge(word)
                self._remember(word, merged)
            ids += merged
        return ids

    def _remember(self, word: str, ids: list[int]) -> None:
        if len(self._words) >= MAX_CACHED_WORDS:
            self._words.clear()
        self._words[word] = ids
        if len(self._words) == _MANY_WORDS:
            merges = zip(self._pairs.tolist(), self._merges.tolist(), strict=True)
            self._find = dict(merges).get

    def _merge(self, word: str) -> list[int]:
        """Merge the bytes of a word: the pair of the lowest rank first, of equal ones the leftmost.

        Symbols are a linked list and candidates a heap, so that a word of n bytes takes n log n steps: a paragraph
        of Chinese or a ruler is one word.
        """
        find = self._find
        ids = [self._byte_ids[byte] for byte in word.encode()]
        end = len(ids)
        ids.append(-1)  # no pair has it, so that the first and the last symbol need no exception
        after, before = list(range(1, end + 2)), list(range(-1, end))
        heap = [
            merge << 32 | left
            for left in range(end)
            if (merge := find(ids[left] << 16 | ids[left + 1], -1)) >= 0
        ]
        heapify(heap)
        while heap:
            candidate = heappop(heap)
            merge, left = candidate >> 32, candidate & 0xFFFFFFFF
            right = after[left]
            if find(ids[left] << 16 | ids[right], -1) != merge:
                continue  # one of the two symbols was merged with another
            ids[left], ids[right] = merge & 0xFFFF, -1
            after[left] = following = after[right]
            before[following] = left
            for first, second in ((before[left], left), (left, following)):
                if (merge := find(ids[first] << 16 | ids[second], -1)) >= 0:
                    heappush(heap, merge << 32 | first)
        return [id for id in ids if id >= 0]
