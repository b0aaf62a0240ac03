"""How much quality each way to quantise the default model costs, and how much time it saves.

    python -m benchmarks.quantisation            # every variant: some 20 minutes

Quality is nDCG@10 of semantic search alone on samples of the development sets. Speed is a ratio: the
same batches go through the float32 graph and the variant in turn, and the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from benchmarks._measure import eval_root, save
from marklight.models.onnx import batches
from marklight.models.record import GRANITE
from scripts.build_model import (
    RANGES_FILE,
    Float32,
    Graph,
    Int8,
    Products,
    Weights,
    build,
    read_ranges,
    read_weights,
    small_integers,
)

if TYPE_CHECKING:
    from marklight.model import Matrix

SETS = ("scifact-train", "cosqa-dev", "stackfaq", "cranfield", "anthropic-docs")
_ALL = slice(None)


# --- other ways to multiply -------------------------------------------------------------------


class DynamicInt8(Float32):
    """onnxruntime's dynamic quantisation: one scale for a whole batch of activations."""

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        values, scales = small_integers(graph.weights[f"{matrix}.w"][rows])
        part = f"{matrix}.{rows.start or 0}"
        return graph.fused(
            "DynamicQuantizeMatMul",
            value,
            graph.constant(f"{part}.q", values.T),
            graph.constant(f"{part}.s", scales),
            graph.constant(f"{part}.z", np.zeros(len(scales), np.int8)),
        )


@dataclass(frozen=True)
class Blocks(Float32):
    """MatMulNBits: weights and activations quantised in blocks along the input."""

    size: int

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        weights = graph.weights[f"{matrix}.w"][rows]
        outputs, inputs = weights.shape
        values, scales = small_integers(weights.reshape(-1, self.size))
        blocks = (values.astype(np.int16) + 128).astype(np.uint8)
        part = f"{matrix}.{rows.start or 0}"
        return graph.fused(
            "MatMulNBits",
            value,
            graph.constant(f"{part}.q", blocks.reshape(outputs, -1, self.size)),
            graph.constant(f"{part}.s", scales.reshape(outputs, -1)),
            K=inputs,
            N=outputs,
            bits=8,
            block_size=self.size,
            accuracy_level=4,
        )


@dataclass(frozen=True)
class Without:
    """Another way, but some matrices exactly."""

    products: Products
    exact: tuple[str, ...]

    def _for(self, matrix: str) -> Products:
        return Float32() if matrix.endswith(self.exact) else self.products

    def table(self, graph: Graph, name: str, ids: str) -> str:
        return self.products.table(graph, name, ids)

    def input(self, graph: Graph, matrix: str, value: str) -> str:
        return self._for(matrix).input(graph, matrix, value)

    def product(self, graph: Graph, matrix: str, value: str, rows: slice = _ALL) -> str:
        return self._for(matrix).product(graph, matrix, value, rows)


def variants() -> dict[str, Products]:
    smoothed = Int8(read_ranges(RANGES_FILE))
    return {
        "float32": Float32(),
        "int8, smoothed, fixed ranges (chosen)": smoothed,
        "int8, dynamic, per channel": DynamicInt8(),
        "MatMulNBits, blocks of 32": Blocks(32),
        "MatMulNBits, blocks of 128": Blocks(128),
    }


# --- quality ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Documents, questions, and which answer which."""

    documents: Sequence[str]
    texts: Sequence[str]
    questions: Sequence[str]
    relevant: Sequence[Mapping[str, float]]


def sample(name: str, documents: int = 800, questions: int = 200) -> Sample:
    folder, rng = eval_root() / "sets" / name, random.Random(0)
    texts = {}
    for line in (folder / "corpus.jsonl").open():
        row = json.loads(line)
        texts[row["_id"]] = f"{row.get('title') or ''}\n\n{row['text']}".strip()
    texts_by_id = {}
    for line in (folder / "queries.jsonl").open():
        row = json.loads(line)
        texts_by_id[row["_id"]] = row["text"]
    relevant: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        question, document, grade = line.split("\t")
        if float(grade) > 0 and document in texts and question in texts_by_id:
            relevant.setdefault(question, {})[document] = float(grade)
    chosen = sorted(relevant)
    rng.shuffle(chosen)
    chosen = chosen[:questions]
    needed = sorted({document for question in chosen for document in relevant[question]})
    others = sorted(set(texts) - set(needed))
    rng.shuffle(others)
    ids = needed + others[: max(0, documents - len(needed))]
    return Sample(
        ids,
        [texts[id] for id in ids],
        [texts_by_id[question] for question in chosen],
        [relevant[question] for question in chosen],
    )


def ndcg(of: Sample, documents: Matrix, questions: Matrix, depth: int = 10) -> list[float]:
    found = []
    for scores, relevant in zip(questions @ documents.T, of.relevant, strict=True):
        best = np.argsort(-scores, kind="stable")[:depth]
        gains = [relevant.get(of.documents[at], 0.0) for at in best]
        ideal = sorted(relevant.values(), reverse=True)[:depth]
        found.append(_discounted(gains) / _discounted(ideal))
    return found


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / float(np.log2(rank + 1)) for rank, gain in enumerate(gains, 1))


# --- running ----------------------------------------------------------------------------------


class Runner:
    """A graph that is run batch by batch, as the embedder does."""

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, tokens: Sequence[Sequence[int]]) -> Matrix:
        rows = np.zeros((len(tokens), GRANITE.dimension), np.float32)
        for places in batches([len(ids) for ids in tokens]):
            given = np.array([tokens[place] for place in places], np.int64)
            rows[places] = self._session.run(None, {"input_ids": given})[0]
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    compare(read_weights(), given.only, given.rounds)


def compare(weights: Weights, only: str, rounds: int) -> None:
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.enable_truncation(GRANITE.token_limit)

    def tokens(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]

    samples = {name: sample(name) for name in SETS}
    encoded = {name: (tokens(of.texts), tokens(of.questions)) for name, of in samples.items()}
    timed = [ids for documents, _ in encoded.values() for ids in documents[::40]]
    count = sum(map(len, timed))
    reference: dict[str, Matrix] = {}
    exact = Runner(build(weights, Float32(), pooling="cls", normalise=True))
    table: dict[str, Any] = {}
    for name, products in variants().items():
        if only not in name and name != "float32":
            continue
        runner = Runner(build(weights, products, pooling="cls", normalise=True))
        scores, cosines = {}, []
        for set_name, of in samples.items():
            documents, questions = (runner(part) for part in encoded[set_name])
            reference.setdefault(set_name, documents)
            cosines.append(float((documents * reference[set_name]).sum(axis=1).mean()))
            scores[set_name] = round(mean(ndcg(of, documents, questions)), 4)
        times = [(_seconds(exact, timed), _seconds(runner, timed)) for _ in range(rounds)]
        table[name] = {
            "ndcg@10": scores,
            "mean": round(mean(scores.values()), 4),
            "lost": round(
                mean(table.get("float32", {}).get("ndcg@10", scores).values())
                - mean(scores.values()),
                4,
            ),
            "cosine": round(mean(cosines), 5),
            "speed": round(median(slow / fast for slow, fast in times), 2),
            "tokens_per_second": round(count / median(fast for _, fast in times)),
        }
        print(name, json.dumps(table[name]), flush=True)
    if not only:
        save("quantisation", {"onnxruntime": onnxruntime.__version__, "variants": table})


def _seconds(runner: Runner, tokens: Sequence[Sequence[int]]) -> float:
    started = time.perf_counter()
    runner(tokens)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
