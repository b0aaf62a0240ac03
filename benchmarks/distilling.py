"""Distil the bundled encoder into three layers, and measure what that costs and saves.

    python -m benchmarks.distilling train CHECKPOINT MINUTES [SEED]     # prints a learning curve
    python -m benchmarks.distilling measure CHECKPOINT [SET …]     # speed, and nDCG@10 beside that of `benchmarks.quality`

Needs PyTorch (2.13.0 was used). The student starts with the embeddings and three layers of the teacher. It is fitted to the teacher's
vectors, to their similarities in a batch and, with a weight that falls to 0, to the states of all tokens after two of the layers. Its texts
are passages as Marklight embeds them, spans of them and the queries of the training lists; documents of KEPT_BACK are not among them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from os import environ
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional

from benchmarks import embedding, ranges
from benchmarks._measure import SETS, corpus, questions, result_path, save, set_path
from benchmarks._torch_encoder import TorchEncoder, padded
from benchmarks.quality import measured
from benchmarks.reranking import bundled, lines
from marklight.eval.collection import open_collection
from marklight.eval.dataset import Dataset, read_dataset
from marklight.models import onnx
from marklight.models.onnx import BEGIN, END, BundledEmbedder
from marklight.models.record import GRANITE, package_folder
from marklight.text.markdown import chunk_embedding_text
from scripts.build_model import POOLING, Int8, build, read_weights

TRAINED = ("kubernetes", "keps", "tldr", "fastapi", "cosqa-dev", "cranfield", "vaswani")
KEPT_BACK = ("scifact-train", "blue-book", "stackfaq", "anthropic-docs")
LAYERS = (0, 3, 5)
"""Of all 20 choices the one whose untrained vectors are nearest to the teacher's: cosine .74, with 1, 3, 5 .69."""
MATCHED = {0: 1, 1: 3}
"""Layers of the student, and those of the teacher after which the states are compared."""
LENGTHS = (32, 64, 96, 128, 128, 192, 384)
"""Token limits of passages, drawn at random."""
POOL, TOKENS, THREADS = 2048, 2048, 2
"""Passages that are sorted by length together, tokens of a batch, and batches of a step, each in a thread."""
RATE, WARM_UP, STATES, SIMILARITIES = 8e-4, 60, 0.1, 10.0
"""Maximum of the learning rate, steps until then, and weights of two of the losses. Hand-set; not measured."""
TESTED, POINT_SECONDS, ROUNDS = 64, 180, 9
"""Passages of a collection for a point of the curve, time between two points, and rounds in which speed is measured."""


def encode(encoder: TorchEncoder, rows: Sequence[list[int]], kept: Any) -> tuple[Any, list[Any]]:
    """Return normalised vectors of token ids, and the states of real tokens after the layers `kept`."""
    ids, mask = padded(rows)
    states, last = [], encoder.shape.layers - 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = encoder.embedded(ids)
        for number in range(encoder.shape.layers):
            value = encoder.layer(number, value, mask, first_only=number == last)
            if number in kept:
                states.append(value[mask[:, 0, 0]])
    return functional.normalize(value[:, 0].float(), dim=1), states


def losses(student: TorchEncoder, teacher: TorchEncoder, rows: Sequence[list[int]]) -> list[Any]:
    """Return the loss of the vectors (1 - cosine), of their similarities and of the states."""
    with torch.no_grad():
        wanted, wanted_states = encode(teacher, rows, MATCHED.values())
    vectors, states = encode(student, rows, MATCHED)
    similar = (vectors @ vectors.T - wanted @ wanted.T).square().mean()
    # Divided by the variance of each channel, because a few are a hundred times wider than others.
    moved = [
        ((one - other).square() / other.var(dim=0)).mean()
        for one, other in zip(states, wanted_states, strict=True)
    ]
    return [1 - (vectors * wanted).sum(dim=1).mean(), similar, torch.stack(moved).mean()]


def passages(name: str) -> list[str]:
    """Return the texts that Marklight embeds for a corpus or the documents of a set."""
    folder = corpus(name)
    in_folder = Dataset(name, (), folder=folder.resolve()) if folder.exists() else None
    dataset = in_folder or read_dataset(set_path(name))
    with (
        open_collection(dataset, "keyword") as opened,
        opened.library.engine.snapshot() as snapshot,
    ):
        chunks_of, ids = snapshot.documents.chunks_of, snapshot.documents.files()
        return [chunk_embedding_text(chunk) for id in ids for chunk in chunks_of(id)]


def truncated(ids: list[int], limit: int) -> list[int]:
    return ids if len(ids) <= limit else [*ids[: limit - 1], END]


def batches(encoder: BundledEmbedder, chance: random.Random) -> Iterator[list[list[int]]]:
    """Yield token ids of texts of similar length, without end."""
    queries = [one["query"] for one in lines("lists")]
    texts = [text for name in TRAINED for text in passages(name)]
    texts += [one["text"] for one in lines("passages")]
    while True:
        tokens = encoder.tokenize(chance.sample(texts, POOL))
        drawn = [truncated(ids, chance.choice(LENGTHS)) for ids in tokens]
        spans = [ids[len(ids) // 2 : -1][: chance.randint(6, 30)] for ids in drawn[::8]]
        drawn += [[BEGIN, *ids, END] for ids in spans]
        drawn += encoder.tokenize(chance.sample(queries, POOL // 3))
        groups: list[list[list[int]]] = [[]]
        for ids in sorted(drawn, key=len):
            if (len(groups[-1]) + 1) * len(ids) > TOKENS:
                groups.append([])
            groups[-1].append(ids)
        chance.shuffle(groups)
        yield from groups


def train(checkpoint: Path, minutes: float, seed: int) -> None:
    weights, encoder = read_weights(), bundled()
    teacher = TorchEncoder(weights.shape, {n: torch.tensor(v) for n, v in weights.tensors.items()})
    tensors = {name: value for name, value in teacher.tensors.items() if "_" in name}
    layers = {
        name.replace(f"l{old}.", f"l{new}.", 1): value.clone().requires_grad_()
        for new, old in enumerate(LAYERS)
        for name, value in teacher.tensors.items()
        if name.startswith(f"l{old}.")
    }
    trained = list(layers.values())
    student = TorchEncoder(replace(weights.shape, layers=len(LAYERS)), tensors | layers)
    optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.98))
    chance, share, tokens, curve = random.Random(seed), 0.0, 0, list[dict[str, Any]]()
    tests = {}
    for name in (*KEPT_BACK, "kubernetes"):
        drawn = random.Random(0).sample(passages(name), TESTED)
        tests[name] = [truncated(ids, 256) for ids in encoder.tokenize(drawn)]

    def gradients(rows: list[list[int]]) -> Any:
        apart, similar, moved = losses(student, teacher, rows)
        total = apart + SIMILARITIES * similar + STATES * (1 - share) * moved
        return torch.autograd.grad(total, trained)

    threads = ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(1,))
    source, step, began, point = batches(encoder, chance), 0, time.monotonic(), 0.0
    while True:
        share = (time.monotonic() - began) / (60 * minutes)
        if share >= 1 or time.monotonic() >= point:
            point = time.monotonic() + POINT_SECONDS
            with torch.no_grad():
                apart = {
                    name: round(float(losses(student, teacher, tests[name])[0]), 4)
                    for name in tests
                }
            seconds = round(time.monotonic() - began)
            curve.append({"step": step, "tokens": tokens, "seconds": seconds} | apart)
            print(curve[-1], flush=True)
            kept = {name: value.detach() for name, value in student.tensors.items()}
            torch.save((curve, kept), checkpoint)
            if share >= 1:
                return
        groups, step = [next(source) for _ in range(THREADS)], step + 1
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / WARM_UP) * (1 - share)
        for value, *parts in zip(trained, *threads.map(gradients, groups), strict=True):
            value.grad = torch.stack(parts).mean(dim=0)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        tokens += sum(len(ids) for rows in groups for ids in rows)


def measure(checkpoint: Path, names: Sequence[str]) -> None:
    """Run the student in the graph, the engine and the pipeline of the bundled model."""
    curve, tensors = torch.load(checkpoint)
    weights, model = read_weights(), checkpoint.with_suffix(".onnx")
    shape = replace(weights.shape, layers=len(LAYERS))
    student = replace(weights, shape=shape, tensors={n: v.numpy() for n, v in tensors.items()})
    products = Int8(ranges.measure(student))
    model.write_bytes(build(student, products, pooling=POOLING, normalise=True))
    encoders = [BundledEmbedder(GRANITE, package_folder(GRANITE), 1) for _ in range(2)]
    open_session = onnx._open_session
    encoders[0].embed_query("opens the session")
    figures: dict[str, Any] = {"curve": curve, "sets": {}}
    known = json.loads(result_path("quality").read_text())["sets"]
    with (
        patch.object(onnx, "_open_session", lambda name, _: open_session(name, str(model))),
        patch.dict(environ, MARKLIGHT_CACHE_DIR=f"{checkpoint}.cache"),
    ):
        figures["times the speed"] = {
            "passages": speed(encoders, [embedding.passages(48)]),
            "queries": speed(encoders, [[query] for query in questions()[:48]]),
        }
        for name in names:
            for way in ("semantic", "learned"):
                ours, theirs = measured(name, way).metrics["ndcg@10"], known[name][way]["ndcg@10"]
                both = {"teacher": round(theirs, 4), "student": round(ours, 4)}
                figures["sets"].setdefault(name, {})[way] = both
            save("distilling", figures)


def speed(encoders: Sequence[BundledEmbedder], parts: Sequence[list[str]]) -> float:
    """Return the ratio of the processor times of two encoders on one thread: the median of alternating rounds."""

    def seconds(encoder: BundledEmbedder) -> float:
        began = time.process_time()
        for part in parts:
            encoder.embed_passages(part)
        return time.process_time() - began

    first, second = encoders
    return round(median(seconds(first) / seconds(second) for _ in range(ROUNDS)), 2)


def main() -> None:
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["train", checkpoint, minutes, *seed]:
            train(Path(checkpoint), float(minutes), int(*seed or (1,)))
        case ["measure", checkpoint, *names]:
            measure(Path(checkpoint), names or SETS)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
