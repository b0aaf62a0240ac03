"""How much of bare onnxruntime's speed the embedder keeps, and what its choices are worth.

    python -m benchmarks.embedding

All ways take the same passages in turn, round by round; ratios are medians over the rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

from benchmarks._measure import corpus, in_a_process, save
from marklight.models import load
from marklight.models.onnx import BATCH_TOKENS, OnnxEmbedder, batches
from marklight.models.record import GRANITE, package_folder

ROUNDS = 5
MEMORY = """
import json, resource, sys
from benchmarks.embedding import passages
from marklight.models import load
model = load()
texts = passages(200)
model.embed_passages(texts)
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000))
"""


def passages(count: int) -> list[str]:
    """Pieces of the Kubernetes documentation, as long as passages are: 20 to 500 tokens."""
    rng = random.Random(2)
    files = sorted(corpus("kubernetes").rglob("*.md"))
    found = []
    for file in rng.choices(files, k=count):
        text = file.read_text(errors="replace")
        start = rng.randrange(max(1, len(text) - 200))
        found.append(text[start : start + rng.choice([100, 300, 600, 900, 1500])])
    return found


def session(model: str, threads: int = 0, **options: Any) -> Any:
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.log_severity_level = 3
    for name, value in options.items():
        if name == "spinning":
            chosen.add_session_config_entry("session.intra_op.allow_spinning", value)
        else:
            setattr(chosen, name, value)
    return onnxruntime.InferenceSession(model, chosen, providers=["CPUExecutionProvider"])


def main() -> None:
    # First: a child's peak begins with what its parent held.
    memory = round(in_a_process(MEMORY))
    texts, model = passages(48), load()
    assert isinstance(model, OnnxEmbedder)
    tokens = model.tokenize(texts)
    count = sum(map(len, tokens))
    data = str(package_folder(GRANITE) / GRANITE.files[0].path)
    bare, single, still = session(data), session(data, 1), session(data, spinning="0")
    lean = session(data, enable_cpu_mem_arena=False)
    pool = ThreadPoolExecutor(2)

    def grouped(limit: int) -> list[np.ndarray[Any, Any]]:
        places = batches([len(ids) for ids in tokens], limit)
        return [np.array([tokens[place] for place in batch], np.int64) for batch in places]

    chosen = grouped(BATCH_TOKENS)

    def runs(on: Any, given: Sequence[Any]) -> Callable[[], None]:
        def all_of_them() -> None:
            for ids in given:
                on.run(None, {"input_ids": ids})

        return all_of_them

    def side_by_side() -> None:
        list(pool.map(lambda ids: single.run(None, {"input_ids": ids}), chosen))

    ways: dict[str, Callable[[], Any]] = {
        "bare onnxruntime": runs(bare, chosen),
        "embedder": lambda: model.embed_passages(texts),
        "tokenising alone": lambda: model.count_tokens(texts),
        "one text at a time": runs(bare, [np.array([ids], np.int64) for ids in tokens]),
        "1024 tokens a batch": runs(bare, grouped(1024)),
        "2048 tokens a batch": runs(bare, grouped(2048)),
        "8192 tokens a batch": runs(bare, grouped(8192)),
        "one thread": runs(single, chosen),
        "two runs side by side, one thread each": side_by_side,
        "no spinning": runs(still, chosen),
        "no memory arena": runs(lean, chosen),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if turn:  # The first round warms up.
                times[name].append(time.perf_counter() - started)
    base = times["bare onnxruntime"]
    save(
        "embedding",
        {
            "passages": len(texts),
            "tokens": count,
            "tokens_per_second": round(count / median(base)),
            "speed_against_bare_onnxruntime": {
                name: round(median(b / t for b, t in zip(base, found, strict=True)), 3)
                for name, found in times.items()
            },
            "peak_megabytes": memory,
        },
    )


if __name__ == "__main__":
    main()
