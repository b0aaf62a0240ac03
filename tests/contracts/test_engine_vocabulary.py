"""Contract of the vocabulary reader: document frequencies and term vectors."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from marklight.errors import StoreError
from marklight.model import Batch, Vectors
from marklight.ports import MIN_VOCABULARY, Engine, ScoredTerm
from tests.contracts.builders import commit, entry, id_of, put, vector, vectors


def without_vector(engine: Engine, limit: int = 99, model: str = "m") -> list[str]:
    with engine.snapshot() as snapshot:
        return snapshot.vocabulary.terms_without_vector(model, limit)


def axis_vectors(*terms: str, model: str = "m") -> Batch:
    """Return term vectors along the axes, of different lengths, which must not matter."""
    rows = np.eye(len(terms), 4, dtype=np.float32) * np.arange(1, len(terms) + 1)[:, None]
    return Batch(concepts=Vectors(model, terms, rows.astype(np.float32)))


def nearest(engine: Engine, *numbers: float, limit: int = 9, model: str = "m") -> list[ScoredTerm]:
    with engine.snapshot() as snapshot:
        return snapshot.vocabulary.nearest_terms(np.array(numbers, dtype=np.float32), model, limit)


def test_terms_without_a_vector_are_ordered_by_document_frequency(engine: Engine) -> None:
    put(engine, entry("a.md", "Pears and pears, apples"), entry("b.md", "the apples", "plum"))
    put(engine, entry("c.md", "plum, apples"))
    # Apples are in three documents and plums in two; pears twice, but in one.
    assert without_vector(engine) == ["apples", "plum", "pears"]
    assert without_vector(engine, 2) == ["apples", "plum"]
    assert without_vector(engine, 0) == []
    commit(engine, axis_vectors("apples", "pears"))
    assert without_vector(engine) == ["plum"]
    assert without_vector(engine, model="other") == ["apples", "plum", "pears"]


def test_document_frequencies_follow_every_commit(engine: Engine) -> None:
    put(engine, entry("a.md", "apple pear"), entry("b.md", "pear plum"), entry("c.md", "plum"))
    assert without_vector(engine) == ["pear", "plum", "apple"]
    put(engine, entry("b.md", "plum plum quince"))
    assert without_vector(engine) == ["plum", "apple", "pear", "quince"]
    commit(engine, Batch(entries=(entry("d.md", "quince"),), removed=(id_of("a.md"),)))
    assert without_vector(engine) == ["plum", "quince"]
    commit(engine, Batch(removed=(id_of("b.md"), id_of("c.md"), id_of("d.md"), id_of("x.md"))))
    assert without_vector(engine) == []
    assert engine.check() == []


def test_terms_are_counted_once_per_document(engine: Engine) -> None:
    put(engine, entry("a.md", "apple pears apples"), entry("b.md", "Apple pear", "apple äpfel"))
    with engine.snapshot() as before:
        commit(engine, Batch(removed=(id_of("a.md"),)))
        terms = ["apple", "pear", "pears", "plum", "apfel"]
        assert before.vocabulary.document_frequencies(terms) == {
            "apple": 2,
            "pear": 1,
            "pears": 1,
            "apfel": 1,
        }
        with engine.snapshot() as snapshot:
            assert snapshot.vocabulary.document_frequencies(terms) == {
                "apple": 1,
                "pear": 1,
                "apfel": 1,
            }
            assert snapshot.vocabulary.document_frequencies([]) == {}


def test_terms_with_a_prefix_are_ordered_by_document_frequency(engine: Engine) -> None:
    put(engine, entry("a.md", "apple apply app apple's ape"), entry("b.md", "apply applied"))
    with engine.snapshot() as snapshot:
        assert list(snapshot.vocabulary.terms_with_prefix("app", 3, 5, 9).items()) == [
            ("apply", 2),
            ("app", 1),
            ("apple", 1),
        ]
        assert list(snapshot.vocabulary.terms_with_prefix("app", 3, 9, 2)) == ["apply", "app"]
        assert list(snapshot.vocabulary.terms_with_prefix("ap", 6, 9, 9)) == ["applied"]
        assert (
            snapshot.vocabulary.terms_with_prefix("apx", 1, 9, 9)
            == snapshot.vocabulary.terms_with_prefix("a", 1, 9, 0)
            == {}
        )


def test_a_snapshot_keeps_its_vocabulary(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"))
    commit(engine, axis_vectors("apple", "pear"))
    with engine.snapshot() as before:
        put(engine, entry("a.md", "pear"))
        for _ in range(2):
            assert before.vocabulary.nearest_terms(np.ones(4, dtype=np.float32), "m", 9) == [
                ScoredTerm("apple", 0.5)
            ]
            assert nearest(engine, 1, 1, 1, 1) == [ScoredTerm("pear", 0.5)]
            assert before.vocabulary.terms_without_vector("m", 9) == []


def test_terms_are_ordered_by_similarity_then_alphabetically(engine: Engine) -> None:
    put(engine, entry("a.md", "pear apple plum"))
    commit(engine, axis_vectors("pear", "apple", "plum"))
    # The question is as long as 5; its parts along the axes are 3/5 and 4/5.
    assert nearest(engine, 3, 4, 0, 0) == [
        ("apple", pytest.approx(0.8)),
        ("pear", pytest.approx(0.6)),
        ("plum", 0.0),
    ]
    assert [each.term for each in nearest(engine, 1, 1, 0, 0, limit=2)] == ["apple", "pear"]
    assert nearest(engine, 1, 0, 0, 0, limit=0) == []
    assert nearest(engine, 1, 0, 0, 0, model="other") == []


def test_terms_that_occur_nowhere_are_not_returned_until_they_occur_again(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"), entry("b.md", "pear"))
    commit(engine, axis_vectors("apple", "pear"))
    commit(engine, Batch(removed=(id_of("b.md"),)))
    assert [each.term for each in nearest(engine, 1, 1, 0, 0)] == ["apple"]
    with engine.snapshot() as snapshot:
        assert snapshot.vocabulary.term_vectors("m", ["apple", "pear"]).keys() == {"apple"}
    put(engine, entry("c.md", "pear"))
    assert [each.term for each in nearest(engine, 0, 1, 0, 0)] == ["pear", "apple"]
    assert without_vector(engine) == []


def test_term_vectors_are_unit_vectors(engine: Engine) -> None:
    put(engine, entry("a.md", "apple pear plum"))
    commit(engine, axis_vectors("apple", "pear"))
    with engine.snapshot() as snapshot:
        known = snapshot.vocabulary.term_vectors("m", ["pear", "plum", "unknown"])
        assert snapshot.vocabulary.term_vectors("other", ["pear"]) == {}
    assert list(known) == ["pear"]
    assert known["pear"].tolist() == [0, 1, 0, 0]


def test_the_mean_vector_is_that_of_all_current_terms(engine: Engine) -> None:
    put(engine, entry("a.md", "apple pear"), entry("b.md", "plum"))
    with engine.snapshot() as snapshot:
        assert snapshot.vocabulary.mean_vector("m") is None
    commit(engine, axis_vectors("apple", "pear", "plum"))
    with engine.snapshot() as snapshot:
        centre = snapshot.vocabulary.mean_vector("m")
        assert centre is not None
        assert centre.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
        assert snapshot.vocabulary.mean_vector("other") is None
    commit(engine, Batch(removed=(id_of("b.md"),)))
    with engine.snapshot() as snapshot:
        centre = snapshot.vocabulary.mean_vector("m")
        assert centre is not None
        assert centre.tolist() == pytest.approx([1 / 2, 1 / 2, 0, 0])


def test_an_existing_term_vector_is_not_replaced(engine: Engine) -> None:
    put(engine, entry("a.md", "apple pear"))
    commit(engine, axis_vectors("apple", "pear"))
    commit(engine, axis_vectors("pear", "apple"))
    assert nearest(engine, 1, 0, 0, 0, limit=1) == [ScoredTerm("apple", 1.0)]


def test_the_vocabulary_is_limited_to_the_most_frequent_terms(engine: Engine) -> None:
    letters = "abcdefghijklmnopqrstuv"
    every = ["x" + "".join(three) for three in product(letters, repeat=3)]
    rare = every[: MIN_VOCABULARY - 1]
    put(engine, entry("a.md", " ".join(["zebra", "zoo", *rare])), entry("b.md", "zebra"))
    # The zebra is in two documents; of those in one, the zoo is last in the alphabet.
    assert without_vector(engine, 99_999) == ["zebra", *rare]
    commit(engine, axis_vectors("zoo", "zebra"))
    assert [each.term for each in nearest(engine, 1, 0, 0, 0)] == ["zebra"]
    put(engine, entry("c.md", "zoo"))
    assert [each.term for each in nearest(engine, 1, 0, 0, 0)] == ["zoo", "zebra"]
    with engine.snapshot() as snapshot:
        assert snapshot.vocabulary.terms_without_vector("m", 99_999) == rare[:-1]


def test_the_vocabulary_grows_with_the_number_of_passages(engine: Engine) -> None:
    terms = ["x" + "".join(three) for three in product("abcdefghijklmnop", repeat=3)]
    put(engine, entry("a.md", " ".join(terms), *["word"] * MIN_VOCABULARY))
    assert len(without_vector(engine, 99_999)) == MIN_VOCABULARY + 1
    put(engine, entry("b.md", *["word"] * 5))
    assert len(without_vector(engine, 99_999)) == MIN_VOCABULARY + 6


def test_a_query_vector_of_another_dimension_is_an_error(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"))
    assert nearest(engine, 1, 0) == []
    commit(engine, axis_vectors("apple"))
    with pytest.raises(StoreError, match="dimensions"):
        nearest(engine, 1, 0)


def test_cleaning_deletes_vectors_of_other_models_and_of_unused_terms(engine: Engine) -> None:
    one = entry("a.md", "apple pear")
    put(engine, one)
    commit(engine, axis_vectors("apple", "pear"))
    commit(engine, axis_vectors("apple", model="old"))
    commit(engine, Batch(vectors=vectors([one.chunks[0].digest], size=4)))
    with engine.snapshot() as before:
        assert engine.clean(keep={"m"}) == 1
        assert engine.clean(keep={"m"}) == 0
        assert nearest(engine, 1, 0, 0, 0, model="old") == []
        assert [
            each.term for each in before.vocabulary.nearest_terms(vector("q", size=4), "old", 9)
        ] == ["apple"]
    put(engine, entry("a.md", "apple"))
    # The pear's vector, and that of the passage.
    assert engine.clean(keep={"m"}) == 2
    put(engine, entry("a.md", "apple pear"))
    assert without_vector(engine) == ["pear"]
    assert without_vector(engine, model="old") == ["apple", "pear"]
    assert engine.check() == []


def test_terms_can_have_vectors_before_any_passage_has(engine: Engine) -> None:
    put(engine, entry("a.md", "apple"))
    commit(engine, Batch(concepts=vectors(["apple"])))
    with engine.snapshot() as snapshot:
        assert snapshot.status.models() == {}
        assert snapshot.status.counts("m").embedded == 0
    assert engine.check() == []
