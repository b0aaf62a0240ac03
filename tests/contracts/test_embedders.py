"""What every embedder owes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marklight.library.configuration import Model
from marklight.models import load
from marklight.models.record import MULTILINGUAL
from marklight.ports import Embedder
from tests.models import tiny
from tests.models.serving import Behaviour, serving


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        "granite-embedding-30m-english",
        MULTILINGUAL,
        "folder",
        "openai:m",
        "ollama:m",
    ],
)
def embedder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Embedder]:
    folder: Path = tmp_path_factory.mktemp("model")
    if request.param == "folder":
        yield load(str(tiny.write_folder(folder / "tiny", tiny.weights())))
    elif ":" in request.param:
        with serving(Behaviour()) as address:
            server = Model(name=request.param, address=address).server
            yield load(request.param, cache_dir=folder, server=server)
    else:
        yield load(request.param, cache_dir=folder)


def test_rows_stand_in_the_order_of_the_texts(embedder: Embedder) -> None:
    texts = ["the cat sat", "a dog ran far on a mat", "the cat", "far " * 40, "the cat sat"]
    rows = embedder.embed_passages(texts)
    assert rows.shape == (5, embedder.dimension)
    assert rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(embedder.embed_passages([text])[0], row, atol=1e-3)
    np.testing.assert_allclose(rows[0], rows[4], atol=1e-3)


def test_nothing_gives_nothing(embedder: Embedder) -> None:
    assert embedder.embed_passages([]).shape == (0, embedder.dimension)
    assert embedder.count_tokens([]) == []


def test_a_text_longer_than_the_limit_is_counted_whole_and_embedded(embedder: Embedder) -> None:
    text = "the cat sat on a mat " * 500
    assert embedder.count_tokens([text])[0] > embedder.token_limit
    assert np.isfinite(embedder.embed_query(text)).all()


def test_a_line_without_end_takes_bounded_time(embedder: Embedder) -> None:
    assert np.isfinite(embedder.embed_passages(["x" * 5_000_000])).all()


def test_it_names_itself(embedder: Embedder) -> None:
    assert embedder.name
    assert embedder.fingerprint == embedder.fingerprint
    assert embedder.token_limit > 2


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(), max_size=60), min_size=1, max_size=4))
def test_any_text_has_a_vector_of_length_one(embedder: Embedder, texts: list[str]) -> None:
    rows = embedder.embed_passages(texts)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert abs(float(np.linalg.norm(embedder.embed_query(texts[0]))) - 1) < 1e-5
    assert all(count >= 0 for count in embedder.count_tokens(texts))
