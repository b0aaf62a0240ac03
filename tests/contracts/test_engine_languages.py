"""Languages of documents: detected ones are counted and filtered, and words are found by the rules of each language."""

from __future__ import annotations

from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine
from marklight.query import Filters
from marklight.text.analyzer import analyze, query_terms
from tests.contracts.builders import commit, entry, id_of, put


def test_documents_have_a_language_by_which_they_are_listed_filtered_and_stemmed(
    engine: Engine,
) -> None:
    put(
        engine,
        entry("a.md", "Alle Abhängigkeiten prüfen.", language="de"),
        entry("b.md", "Check all dependencies.", language="en"),
        entry("c.md", "Check the dependencies."),
        entry("d.md", "Un texte.", metadata={"language": "fr"}),
    )
    with engine.snapshot() as snapshot:
        assert list(snapshot.metadata.languages().items()) == [("de", 1), ("en", 1), ("fr", 1)]
        german = Filters(where=(("language", "DE"),))
        assert snapshot.metadata.matching_documents(german, 9) == [id_of("a.md")]
        terms = query_terms("die Abhängigkeit", languages=("de", "en"))
        results = snapshot.lexical.search(terms, FIELD_BOOSTS, Filters(), 9)
        owners = snapshot.documents.owners([each.chunk_id for each in results])
        assert set(owners.values()) == {id_of("a.md")}


def test_an_english_query_finds_loan_words_in_documents_of_other_languages(
    engine: Engine,
) -> None:
    assert analyze("Cluster", "de") != analyze("cluster")
    put(engine, entry("a.md", "Der Cluster war gestern langsam.", language="de"))
    with engine.snapshot() as snapshot:
        results = snapshot.lexical.search(query_terms("clusters"), FIELD_BOOSTS, Filters(), 9)
        owners = snapshot.documents.owners([each.chunk_id for each in results])
        assert set(owners.values()) == {id_of("a.md")}
        # A stop word of German is none of its terms, though `war` is a word in English.
        assert not snapshot.lexical.search(query_terms("war"), FIELD_BOOSTS, Filters(), 9)


def test_a_phrase_is_found_in_documents_of_every_language(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "Alle offenen Abhängigkeiten prüfen.", language="de"),
        entry("b.md", "No text of this kind."),
    )
    with engine.snapshot() as snapshot:
        for phrase in ("offenen Abhängigkeiten", "Alle offenen"):
            matching = snapshot.metadata.matching_documents(Filters(phrases=(phrase,)), 9)
            assert matching == [id_of("a.md")]
    commit(engine, Batch(removed=(id_of("a.md"),)))
    with engine.snapshot() as snapshot:
        assert list(snapshot.metadata.languages()) == []
