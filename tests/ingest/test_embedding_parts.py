"""Passages over the token limit of a model: the model reads all of a passage, in parts that it can read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.ingest.embedding import embed_chunks, embedding_parts
from marklight.lazy import dataclass
from marklight.models.fake import FakeEmbedder
from marklight.text.markdown import chunk_embedding_text
from tests.ingest.reading import entry
from tests.making import chunk


@dataclass(frozen=True, slots=True)
class ByteModel(FakeEmbedder):
    """A model whose tokens are three bytes."""

    def count_tokens(self, texts: object) -> list[int]:
        return [2 + len(text.encode()) // 3 for text in texts]  # type: ignore[attr-defined]


def model(limit: int) -> ByteModel:
    return ByteModel(token_limit=limit)


@pytest.mark.parametrize(
    "text",
    [
        "# Guide\n\n" + "One sentence with some words. " * 60,
        "# " + "漢字" * 140 + "\n\n## " + "😀" * 299 + "\n\n" + "漢字。" * 2000,
        "# Code\n\n```python\n" + "value = compute(value)\n" * 300 + "```\n",
        "| a |\n|---|\n" + f"| {'漢' * 400} |\n" * 20,
        "---\ntitle: " + "漢" * 299 + "\n---\n",
        "x" * 9000,
    ],
)
def test_no_part_exceeds_the_token_limit(text: str) -> None:
    chunks = entry(text).chunks
    for limit in (24, 64, 256):
        parts = embedding_parts(model(limit), chunks)
        assert max(model(limit).count_tokens([part.text for part in parts])) <= limit
        assert [part.passage for part in parts] == sorted(part.passage for part in parts)
        assert {part.passage for part in parts} == set(range(len(chunks)))


@settings(max_examples=200)
@given(st.text(st.sampled_from("ab.? \n漢😀"), min_size=1, max_size=400), st.integers(12, 90))
def test_the_parts_of_a_passage_have_all_of_its_words(body: str, limit: int) -> None:
    long = replace(chunk("a", body), title="Title", headings=("Heading",))
    parts = embedding_parts(model(limit), [long])
    assert max(model(limit).count_tokens([part.text for part in parts])) <= limit
    embedded = "".join(part.text.partition("\n\n")[2] for part in parts)
    assert "".join(embedded.split()) == "".join(chunk_embedding_text(long)[17:].split())


def test_a_passage_within_the_limit_has_exactly_the_vector_of_the_model() -> None:
    short, long = chunk("a", "one two three"), chunk("b", "four five six " * 40)
    limited = model(64)
    both = embed_chunks(limited, [short, long, short])
    alone = limited.embed_passages([chunk_embedding_text(short)])
    assert np.array_equal(both[[0, 2]], np.repeat(alone, 2, axis=0))
    assert np.linalg.norm(both[1]) == pytest.approx(1)


def test_the_vector_of_a_long_passage_is_the_mean_of_its_parts() -> None:
    long = chunk("b", "four five six seven. " * 9 + "eight nine ten eleven. " * 9)
    limited = model(64)
    parts = embedding_parts(limited, [long])
    rows = limited.embed_passages([part.text for part in parts])
    mean = np.average(rows, axis=0, weights=[part.weight for part in parts])
    assert len(parts) > 1
    assert embed_chunks(limited, [long])[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-6)


def test_parts_end_after_sentences() -> None:
    long = chunk("b", "This is one sentence of several words. " * 20)
    parts = embedding_parts(model(64), [long])
    assert all(part.text.endswith("words.") for part in parts)


def test_nothing_is_embedded_for_no_passages() -> None:
    assert embedding_parts(model(64), []) == []
