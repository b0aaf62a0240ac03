"""Measure the check of `ask`: sentences that their passages support, and sentences that they do not.

Supported: sentences of the reference answers of anthropic-docs with the passages that are judged relevant to the question,
and sentences of documents (FastAPI, Kubernetes, Blue Book), also shortened and joined. Unsupported: the same answers with
the most similar other passages, and sentences of documents with another passage of the same document, with a changed
number, an exchanged term, or negated. Documents are split into two halves by a digest: weights and threshold are chosen on
one, everything is reported on the other.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

import marklight
from benchmarks._measure import corpus, save, set_path
from marklight import models
from marklight.library.support import SupportCheck, Weights, inverse_frequencies
from marklight.model import Chunk, DocumentId, Kind
from marklight.ports import Embedder
from marklight.text.analyzer import vocabulary_terms
from marklight.text.lines import split_sentences
from marklight.text.markdown import strip_markup

KEPT = 0.9
"""Share of supported sentences of answers, in the first half, that the threshold keeps."""
DOCUMENTS = 150
"""Documents of each collection."""
COLLECTIONS = ("fastapi", "kubernetes", "blue-book")
MIN_WORDS, MAX_WORDS = 8, 40
SEED = 7

_NUMBER = re.compile(r"(?<![\w.])\d{1,4}(?![\w.])")
_VERB = re.compile(r"\b(is|are|can|will|must|should|may|was|were|does|do)\b(?! not)")
_WORD = re.compile(r"[A-Za-z]{5,}")


class Example(NamedTuple):
    """A sentence with the passages that it cites."""

    kind: str
    supported: bool
    document: str
    sentence: str
    passages: tuple[Chunk, ...]

    @property
    def is_first_half(self) -> bool:
        return crc32(self.document.encode()) % 2 == 0


class Measured(NamedTuple):
    """An example with its features."""

    example: Example
    coverage: float
    similarity: float
    missing_name: bool
    altered_quote: bool


def main() -> None:
    embedder = models.load()
    measured: list[Measured] = []
    for name in ("anthropic-docs", *COLLECTIONS):
        examples, frequencies, documents = (
            _answers(embedder) if name == "anthropic-docs" else _documents(name)
        )
        measured += _measure(examples, frequencies, documents, embedder)
        print(name, Counter(each.kind for each in examples), flush=True)
    save("support", _report(measured, embedder.name))


def _answers(embedder: Embedder) -> tuple[list[Example], Counter[str], int]:
    """Return sentences of reference answers, with relevant passages and with the most similar others."""
    folder = set_path("anthropic-docs")
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    chunks = {row["_id"]: _chunk(row["_id"], row["title"], row["text"]) for row in rows}
    ids = list(chunks)
    vectors = embedder.embed_passages([chunks[id].text for id in ids])
    relevant: dict[str, list[str]] = defaultdict(list)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, id, _ = line.split("\t")
        relevant[query].append(id)
    examples: list[Example] = []
    for line in (folder / "queries.jsonl").read_text().splitlines():
        row = json.loads(line)
        right = relevant[row["_id"]]
        near = vectors @ embedder.embed_query(row["text"])
        others = [ids[at] for at in np.argsort(-near) if ids[at] not in right][: len(right)]
        for sentence in map(str.strip, split_sentences(row["answer"])):
            if len(sentence.split()) >= MIN_WORDS:
                for kind, cited in (("answer", right), ("answer, other passage", others)):
                    passages = tuple(chunks[id] for id in cited)
                    examples.append(Example(kind, cited is right, row["_id"], sentence, passages))
    frequencies = Counter(
        term for chunk in chunks.values() for term in vocabulary_terms(chunk.text)
    )
    return examples, frequencies, len(chunks)


def _documents(name: str) -> tuple[list[Example], Counter[str], int]:
    """Return sentences of documents, as they are and changed."""
    chooser = random.Random(SEED)
    files = sorted(corpus(name).rglob("*.md"))
    chosen = chooser.sample(files, min(DOCUMENTS, len(files)))
    with tempfile.TemporaryDirectory() as folder:
        for file in chosen:
            target = Path(folder) / file.relative_to(corpus(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        settings = {"model": {"name": "none"}}
        with marklight.open(folder, settings) as library:
            library.index()
            with library.engine.snapshot() as snapshot:
                ids = sorted(snapshot.documents.files())
                passages = {id.path: snapshot.documents.chunks_of(id) for id in ids}
    frequencies: Counter[str] = Counter()
    for chunks in passages.values():
        frequencies.update(vocabulary_terms("\n".join(chunk.text for chunk in chunks)))
    examples = [
        example
        for path, chunks in passages.items()
        if len(chunks) > 1
        for example in _of_document(f"{name}/{path}", chunks, chooser)
    ]
    return examples, frequencies, len(passages)


def _of_document(path: str, chunks: Sequence[Chunk], chooser: random.Random) -> Iterator[Example]:
    """Yield the examples of one passage of a document, chosen at random."""
    prose = [chunk for chunk in chunks if chunk.kind is Kind.PROSE and _sentences(chunk)]
    if len(prose) < 2:
        return
    chunk, other = chooser.sample(prose, 2)
    sentences = _sentences(chunk)
    sentence = chooser.choice(sentences)

    def example(kind: str, supported: bool, text: str) -> Example:
        return Example(kind, supported, path, text, (chunk,))

    yield example("quoted", True, sentence)
    if (short := sentence.rsplit(", ", 1)[0]) != sentence and len(short.split()) >= MIN_WORDS:
        yield example("shortened", True, f"{short}.")
    if len(sentences) > 1:
        first, second = chooser.sample(sentences, 2)
        joined = f"{first.rstrip('.')}, and {second[0].lower()}{second[1:]}"
        yield example("joined", True, joined)
    yield example("other passage of the document", False, chooser.choice(_sentences(other)))
    numbered = [
        (each, text, number)
        for each in prose
        for text in _sentences(each)
        for number in _NUMBER.finditer(text)
    ]
    if numbered:
        cited, text, number = chooser.choice(numbered)
        changed = str(int(number[0]) + chooser.randint(2, 9))
        yield Example("with number", True, path, text, (cited,))
        wrong = _replaced(text, number, changed)
        yield Example("changed number", False, path, wrong, (cited,))
    words, others = (_WORD.findall(strip_markup(each.text)) for each in (chunk, other))
    foreign = sorted({word.lower() for word in others} - {word.lower() for word in words})
    own = list(_WORD.finditer(sentence))
    if own and foreign:
        yield example(
            "exchanged term",
            False,
            _replaced(sentence, chooser.choice(own), chooser.choice(foreign)),
        )
    if verb := _VERB.search(sentence):
        yield example("negated", False, _replaced(sentence, verb, f"{verb[0]} not"))


def _sentences(chunk: Chunk) -> list[str]:
    found = (each.strip() for each in split_sentences(strip_markup(chunk.text)))
    return [
        each
        for each in found
        if MIN_WORDS <= len(each.split()) <= MAX_WORDS and each[-1] in ".!?" and each[0].isupper()
    ]


def _replaced(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _chunk(id: str, title: str, text: str) -> Chunk:
    place = DocumentId("default", id)
    return Chunk(id, place, 0, title, (), "", (1, 1), Kind.PROSE, text, "", id)


def _measure(
    examples: Sequence[Example], frequencies: Mapping[str, int], documents: int, embedder: Embedder
) -> list[Measured]:
    measured = []
    for example in examples:
        check = SupportCheck(
            example.passages,
            embedder,
            lambda words: inverse_frequencies(words, frequencies, documents),
        )
        found = check.features(example.sentence, range(1, len(example.passages) + 1))
        measured.append(
            Measured(
                example,
                found.coverage,
                found.similarity or 0.0,
                found.missing_name,
                found.altered_quote,
            )
        )
    return measured


def _report(measured: Sequence[Measured], model: str) -> dict[str, Any]:
    first = [each for each in measured if each.example.is_first_half]
    second = [each for each in measured if not each.example.is_first_half]
    figures: dict[str, Any] = {"sentences": {"first half": len(first), "second half": len(second)}}
    for name, uses_model in ((model, True), ("keywords only", False)):
        weights = _fitted(first, uses_model)
        figures[name] = {
            "weights": {key: round(value, 3) for key, value in weights._asdict().items()},
            "second half": _shares(second, weights, uses_model),
            "first half": _shares(first, weights, uses_model),
        }
    return figures


def _rows(measured: Sequence[Measured], uses_model: bool) -> Any:
    return np.array(
        [
            (
                1.0,
                each.coverage,
                each.similarity if uses_model else 0.0,
                each.missing_name,
                each.altered_quote,
            )
            for each in measured
        ]
    )


def _fitted(measured: Sequence[Measured], uses_model: bool) -> Weights:
    """Fit the logistic regression, all kinds of both classes counting alike, then choose the threshold."""
    rows = _rows(measured, uses_model)
    labels = np.array([float(each.example.supported) for each in measured])
    counts = Counter(each.example.kind for each in measured)
    kinds = {
        label: len({e.example.kind for e in measured if e.example.supported is label})
        for label in (True, False)
    }
    importance = np.array(
        [1 / counts[each.example.kind] / kinds[each.example.supported] for each in measured]
    )
    importance /= importance.sum()
    coefficients = np.zeros(5)
    for _ in range(50):  # Newton's method, with a little regularisation
        predicted = 1 / (1 + np.exp(-rows @ coefficients))
        gradient = rows.T @ (importance * (labels - predicted)) - 1e-4 * coefficients
        curvature = (rows.T * (importance * predicted * (1 - predicted))) @ rows + 1e-4 * np.eye(5)
        coefficients += np.linalg.solve(curvature, gradient)
    predicted = 1 / (1 + np.exp(-rows @ coefficients))
    answers = [at for at, each in enumerate(measured) if each.example.kind == "answer"]
    threshold = float(np.quantile(predicted[answers], 1 - KEPT))
    bias, coverage, similarity, missing_name, altered_quote = map(float, coefficients)
    return Weights(bias, coverage, similarity, missing_name, altered_quote, threshold)


def _shares(
    measured: Sequence[Measured], weights: Weights, uses_model: bool
) -> dict[str, dict[str, float]]:
    """Return the number of sentences of each kind and the share that is judged as supported."""
    predicted = 1 / (1 + np.exp(-_rows(measured, uses_model) @ np.array(weights[:5])))
    judged: dict[str, list[bool]] = defaultdict(list)
    for each, probability in zip(measured, predicted, strict=True):
        judged[each.example.kind].append(bool(probability >= weights.threshold))
        total = "all supported" if each.example.supported else "all unsupported"
        judged[total].append(bool(probability >= weights.threshold))
    return {
        kind: {"sentences": len(each), "judged supported": round(float(np.mean(each)), 3)}
        for kind, each in sorted(judged.items())
    }


if __name__ == "__main__":
    main()
