"""Embedding by a server: requests and parsing of responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marklight.errors import ModelServerError
from tests.models.remote.opening import FAKE, KINDS, opened
from tests.models.serving import Behaviour


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_normalised(kind: str, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path, kind)
    texts = ["the cat sat", "a dog ran"]
    np.testing.assert_allclose(model.embed_passages(texts), FAKE.embed_passages(texts), atol=1e-6)
    np.testing.assert_allclose(model.embed_query("a cat"), FAKE.embed_query("a cat"), atol=1e-6)
    assert (model.name, model.dimension) == (f"{kind}:m", 64)


def test_rows_are_ordered_by_index(does: Behaviour, address: str, tmp_path: Path) -> None:
    does.shuffled = True
    texts = ["one", "two", "three"]
    found = opened(address, tmp_path).embed_passages(texts)
    np.testing.assert_allclose(found, FAKE.embed_passages(texts), atol=1e-6)


def test_prefixes_are_added_to_queries_and_passages(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, query_prefix="Q: ", passage_prefix="P: ")
    model.embed_query("one")
    model.embed_passages(["two"])
    assert [given["input"] for given in does.query("/v1/embeddings")][-2:] == [
        ["Q: one"],
        ["P: two"],
    ]


def test_requests_are_bounded_by_texts_and_by_characters(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path, batch_texts=3, batch_characters=20, threads=1)
    texts = ["abcd"] * 4 + ["x" * 18, "y" * 30, "z"]
    found = model.embed_passages(texts)
    sent = [given["input"] for given in does.query("/v1/embeddings")][1:]
    assert sent == [["abcd"] * 3, ["abcd"], ["x" * 18], ["y" * 30], ["z"]]
    np.testing.assert_allclose(found, FAKE.embed_passages(texts), atol=1e-6)


def test_the_configured_dimension_is_requested(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    assert opened(address, tmp_path, dimension=16).embed_passages(["a"]).shape == (1, 16)
    does.wrong = _all_of_64
    with pytest.raises(ModelServerError, match="returned 64 numbers per vector, not 16"):
        opened(address, tmp_path / "new", dimension=16).embed_query("a")


def _all_of_64(reported: Any) -> Any:
    for item in reported["data"]:
        item["embedding"] = [1.0] * 64
    return reported


def test_connections_are_reused(does: Behaviour, address: str, tmp_path: Path) -> None:
    model = opened(address, tmp_path)
    for number in range(5):
        model.embed_query(f"question {number}")
    assert does.connections == 1


def test_an_empty_text_is_never_sent(does: Behaviour, address: str, tmp_path: Path) -> None:
    opened(address, tmp_path).embed_passages(["", " \n"])
    assert does.query("/v1/embeddings")[-1]["input"] == [".", "."]


@pytest.mark.parametrize(
    "refusal",
    [
        (400, "the input length exceeds the context length"),
        (400, "This model's maximum context length is 8192 tokens"),
        (413, "Payload too large"),
        (422, "Input validation error: `inputs` must have less than 512 tokens. Given: 700"),
        (500, "input is too large to process. increase the physical batch size"),
    ],
)
def test_only_a_text_rejected_as_too_long_is_truncated(
    refusal: tuple[int, str], does: Behaviour, address: str, tmp_path: Path
) -> None:
    does.longest, does.too_long = 300, refusal
    long = "word " * 200
    found = opened(address, tmp_path, retries=0).embed_passages(["one", long, "two", "three"])
    expected = FAKE.embed_passages(["one", long[:250], "two", "three"])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_truncation_stops_at_the_minimum_length(
    does: Behaviour, address: str, tmp_path: Path
) -> None:
    model = opened(address, tmp_path)
    assert model.dimension == 64
    does.longest = 1
    before = len(does.requests)
    with pytest.raises(ModelServerError, match="exceeds the context length"):
        model.embed_passages(["some text that is not long at all " * 4])
    assert len(does.requests) - before < 5
