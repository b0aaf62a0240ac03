"""Train a cross-encoder from the bundled encoder's weights, and measure what it changes in the best ten results.

    python -m benchmarks.reranking train CHECKPOINT STEPS     # prints a learning curve; resumes from the checkpoint
    python -m benchmarks.reranking measure CHECKPOINT [NAME …]     # sets of benchmarks.everyday

Needs PyTorch (2.13.0 was used). A list of the training data is a query, the right passage and others of its document. The model learns
what the cosine of the encoder lacks: its logit is added to a multiple of the cosine, and a softmax over the list is fitted to the right one.
Lists of two sources are kept back for the curve. On a processor with bfloat16 products, 40 pairs take 1.4 s of one core.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch.nn import functional

from benchmarks import everyday
from benchmarks._measure import eval_root
from benchmarks._torch_encoder import TorchEncoder, padded
from marklight import models
from marklight.models.onnx import END, BundledEmbedder
from marklight.text.markdown import chunk_embedding_text
from scripts.build_model import read_weights

KEPT_BACK = ("docker", "windows-itpro")
"""Sources that the model is not trained on."""
TESTED = 100
"""Lists of these for each point of the curve."""
FROZEN = 2
"""Lower layers that are not trained: they need no gradients, and the package has them already."""
NEGATIVES, LISTS = 4, 8
"""Wrong passages of a list at most, and lists of a step."""
QUERY_TOKENS, PASSAGE_TOKENS = 30, 124
RATE, NEW_RATE, WARM_UP, SEED = 1e-4, 1e-3, 40, 1
NEW = ("passage", "out", "cosine")
"""Parameters that the encoder does not have; they learn faster."""
COSINE = 20.0
"""Factor on the cosine before training; it is learned too."""
CANDIDATES = 10
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Weights of the model's logit beside the logit of a result's score."""


class CrossEncoder(TorchEncoder):
    """An encoder over `<s> query </s></s> passage </s>` with one output."""

    def __init__(self, checkpoint: Path) -> None:
        torch.manual_seed(SEED)
        weights = read_weights()
        fixed = {name: torch.tensor(value) for name, value in weights.tensors.items()}
        upper = tuple(f"l{layer}." for layer in range(FROZEN, weights.shape.layers))
        self.trained = {name: value for name, value in fixed.items() if name.startswith(upper)}
        self.trained["passage"] = torch.zeros(weights.shape.hidden)
        self.trained["out"] = torch.randn(weights.shape.hidden) * 0.005
        self.trained["cosine"] = torch.tensor(COSINE)
        self.steps = 0
        if checkpoint.exists():
            self.steps, kept = torch.load(checkpoint)
            self.trained.update(kept)
        for value in self.trained.values():
            value.requires_grad_()
        super().__init__(weights.shape, fixed | self.trained)

    def save(self, checkpoint: Path) -> None:
        kept = {name: value.detach() for name, value in self.trained.items()}
        torch.save((self.steps, kept), checkpoint)

    def logits(self, query: Sequence[int], passages: Sequence[Sequence[int]]) -> Any:
        """Return one logit for each passage; texts are token ids with special tokens."""
        first = [*query[:-1][: QUERY_TOKENS + 1], END]
        rows = [[*first, END, *passage[1:-1][:PASSAGE_TOKENS], END] for passage in passages]
        ids, mask = padded(rows)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with torch.no_grad():
                value = self.embedded(ids)
                for layer in range(FROZEN):
                    value = self.layer(layer, value, mask)
            in_passage = torch.arange(ids.shape[1])[:, None] >= len(first)
            value = value + self.tensors["passage"] * in_passage
            for layer in range(FROZEN, self.shape.layers):
                value = self.layer(layer, value, mask)
            return (value[:, 0] * self.tensors["out"]).sum(dim=1)


class Lists:
    """Training lists as token ids and cosines; the right passage comes first."""

    def __init__(self, encoder: BundledEmbedder) -> None:
        self.encoder = encoder
        self.texts = {one["id"]: one["text"] for one in lines("passages")}
        chance = random.Random(SEED)
        every = [one for one in lines("lists") if one["negatives"]]
        chance.shuffle(every)
        self.test = [one for one in every if one["source"] in KEPT_BACK][:TESTED]
        self.train = [one for one in every if one["source"] not in KEPT_BACK]

    def scores(self, model: CrossEncoder, one: dict[str, Any]) -> tuple[Any, Any]:
        """Return the scores of a list's passages by cosine alone and with the model."""
        ids = (one["positive"], *one["negatives"][:NEGATIVES])
        texts = [self.texts[id] for id in ids]
        vectors = self.encoder.embed_passages(texts)
        cosines = torch.from_numpy(vectors @ self.encoder.embed_query(one["query"]))
        tokens = self.encoder.tokenize([one["query"], *texts])
        base = cosines * model.tensors["cosine"]
        return base, base + model.logits(tokens[0], tokens[1:])


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(eval_root() / "train" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def loss(scores: Any) -> Any:
    return functional.cross_entropy(scores[None], torch.tensor([0]))


def train(checkpoint: Path, steps: int) -> None:
    model, lists = CrossEncoder(checkpoint), Lists(bundled())
    new = [model.trained[name] for name in NEW]
    layers = [value for name, value in model.trained.items() if name not in NEW]
    optimizer = torch.optim.AdamW([{"params": layers}, {"params": new}], betas=(0.9, 0.98))
    while model.steps < steps:
        if model.steps % 50 == 0:
            curve(model, lists)
            model.save(checkpoint)
        rate = min(1, (model.steps + 1) / WARM_UP) * (1 - model.steps / steps)
        for group, most in zip(optimizer.param_groups, (RATE, NEW_RATE), strict=True):
            group["lr"] = most * rate
        start = model.steps * LISTS % (len(lists.train) - LISTS)
        optimizer.zero_grad()
        for one in lists.train[start : start + LISTS]:
            (loss(lists.scores(model, one)[1]) / LISTS).backward()
        torch.nn.utils.clip_grad_norm_(list(model.trained.values()), 1.0)
        optimizer.step()
        model.steps += 1
    curve(model, lists)
    model.save(checkpoint)


def curve(model: CrossEncoder, lists: Lists) -> None:
    with torch.no_grad():
        pairs = [lists.scores(model, one) for one in lists.test]
    ways = {"cosine": [base for base, _ in pairs], "with the model": [both for _, both in pairs]}
    for name, scores in ways.items():
        right = fmean(float(one.argmax() == 0) for one in scores)
        mean_loss = fmean(float(loss(one)) for one in scores)
        print(f"step {model.steps}, {name}: first {right:.3f}, loss {mean_loss:.4f}", end="; ")
    print(f"{time.process_time():.0f} s of processor time", flush=True)


def measure(checkpoint: Path, names: Sequence[str]) -> None:
    """Print the share of useful first passages of each set, by weight of the model."""
    model, encoder = CrossEncoder(checkpoint), bundled()
    print("weights", *WEIGHTS)
    for name in names:
        useful: list[list[bool]] = []
        for collection, questions in everyday.read_questions(name).items():
            with everyday.opened(collection) as library:
                for question in questions:
                    if question.kind in (everyday.OFF_TOPIC, everyday.BROAD):
                        continue
                    answer = library.search(question.text, limit=CANDIDATES, refresh=False)
                    hits = answer.hits
                    if not hits:
                        useful.append([False] * len(WEIGHTS))
                        continue
                    texts = [chunk_embedding_text(hit.chunk) for hit in hits]
                    tokens = encoder.tokenize([question.text, *texts])
                    with torch.no_grad():
                        logits = model.logits(tokens[0], tokens[1:]).tolist()
                    sums = [
                        [
                            _logit(hit.score) + weight * one
                            for hit, one in zip(hits, logits, strict=True)
                        ]
                        for weight in WEIGHTS
                    ]
                    firsts = [hits[one.index(max(one))] for one in sums]
                    useful.append([everyday.is_useful(hit.chunk, question) for hit in firsts])
        shares = (f"{fmean(column):.3f}" for column in zip(*useful, strict=True))
        print(name, len(useful), *shares, flush=True)


def _logit(score: float) -> float:
    bounded = min(1 - 1e-6, max(1e-9, score))
    return log(bounded / (1 - bounded))


def bundled() -> BundledEmbedder:
    encoder = models.load()
    assert isinstance(encoder, BundledEmbedder)
    return encoder


def main() -> None:
    torch.set_num_threads(1)
    match sys.argv[1:]:
        case ["train", checkpoint, steps]:
            train(Path(checkpoint), int(steps))
        case ["measure", checkpoint, *names]:
            measure(Path(checkpoint), names or everyday.names())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
