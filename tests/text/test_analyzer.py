"""The analyzer: stemming, stop words, bigrams, identifiers, and the terms of queries and the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.model import trail
from marklight.text import analyzer
from marklight.text.analyzer import (
    analyze,
    base_form,
    code_terms,
    defined_term,
    identifier_parts,
    query_terms,
    surface_prefixes,
    trim_stop_words,
    variant_forms,
    vocabulary_terms,
)
from marklight.text.markdown import strip_markup
from tests.linear import demand_linear


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("getUserById", ["getuserbyid", "get", "user", "by", "id"]),
        ("parse_json_data", ["parse_json_data", "parse", "json", "data"]),
        ("HTTPResponseError", ["httpresponseerror", "http", "response", "error"]),
        ("std::vector", ["std", "::", "vector"]),
        ("C++", ["c++"]),
        ("myVar123", ["myvar123", "my", "var", "123"]),
    ],
)
def test_code_terms_are_identifiers_whole_and_split(name: str, tokens: list[str]) -> None:
    assert code_terms(name) == tokens


def test_camel_case_and_snake_case_share_their_parts() -> None:
    assert {"get", "user", "by", "id"} <= {*code_terms("getUserById")} & {
        *code_terms("get_user_by_id")
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserById", ["get", "user", "id"]),
        ("parse_json_data(HTTPResponses)", ["pars", "json", "data", "http", "respons"]),
        ("x_train", ["train"]),
        ("plain words, NASA, _so_, v1 and __init__", []),
        ("a" * 40 + "B" * 40, []),
    ],
)
def test_identifiers_in_prose_are_split_into_analyzed_words(text: str, expected: list[str]) -> None:
    assert identifier_parts(text) == expected


def test_query_terms_include_the_parts_of_identifiers() -> None:
    assert query_terms("what is a ConfigMap") == ["configmap", "config", "map"]


def test_prose_is_stemmed_and_stop_words_are_dropped() -> None:
    assert analyze("The deployments were deployed") == ["deploy", "deploy"]


@pytest.mark.parametrize(
    "words",
    [
        "buy buys buying bought",
        "write writes written wrote Wrote",
        "child children children's",
        "analysis analyses",
        "colour colours coloured color colorful",
        "behaviour behavior behaviours",
        "organise organize organisation organizations organizing",
        "centre centres center",
    ],
)
def test_irregular_forms_and_spellings_have_one_term(words: str) -> None:
    assert len(set(analyze(words))) == 1


def test_words_that_resemble_irregular_forms_keep_their_own_term() -> None:
    words = "size prize left leave four for hour saw see rose rise contour control"
    assert len(set(analyze(words))) == len(words.split()) - 1  # `for` is a stop word


def test_base_forms_have_no_other_base_form() -> None:
    assert all(
        analyze(base_form(base)) == analyze(base) == analyze(form)
        for form, base in variant_forms().items()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C++", ["c++"]),
        ("C# or F#", ["c#", "f#"]),
        (".NET", [".net"]),
        ("Node.js", ["node", "js"]),
        ("roll-back and/or 'quoted'", ["roll", "back", "quot"]),
        ("Café", ["cafe"]),
        ("𝙱ank", ["bank"]),
    ],
)
def test_special_characters_are_part_of_language_names(text: str, expected: list[str]) -> None:
    assert analyze(text) == expected


def test_cjk_text_becomes_character_bigrams() -> None:
    assert analyze("全文検索") == ["全文", "文検", "検索"]
    assert set(analyze("検索")) <= set(analyze("全文検索を行う"))
    assert analyze("검색") == ["검색"]


def test_a_query_of_stop_words_keeps_them() -> None:
    assert analyze("to be or not to be") == ["not"]
    assert query_terms("what is it") == ["what", "is", "it"]


@given(st.text())
def test_any_text_can_be_analyzed(text: str) -> None:
    assert all(word and not word.isspace() for word in analyze(text))
    assert all(word and " " not in word for word in (*code_terms(text), *identifier_parts(text)))
    strip_markup(text)


@pytest.mark.parametrize("piece", ["[", "![", "[[", "<a ", "<!--", "{{<", "](", "\\u3042", "a_"])
def test_analysis_takes_linear_time(piece: str) -> None:
    demand_linear(
        lambda text: (strip_markup(text), analyze(text), identifier_parts(text)),
        lambda size: piece * (size // len(piece)),
        100_000,
    )


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("Ida’s hat", "Ida's hat"),
        ("the children’s room", "child room"),
        ("what's the time", "time"),
        ("Where’s the printer", "printer"),
        ("I'm sure they’ve said it'll rain", "sure said rain"),
        ("we don’t stop", "don't stop"),
    ],
)
def test_both_apostrophes_are_equal_and_contracted_stop_words_are_dropped(
    text: str, equal: str
) -> None:
    assert analyze(text) == analyze(equal)


def test_strip_markup_keeps_words_and_drops_link_targets() -> None:
    text = 'See [the guide](/docs/x.md "T"), ![a picture](p.png), [[Page|this]], <b>bold</b> {{< note title="Mind" >}}.'
    assert strip_markup(text).split() == "See the guide, a picture, this, bold Mind.".split()


def test_the_trail_contains_the_title_once() -> None:
    assert trail("Auth", ("Auth", "Refresh")) == "Auth > Refresh"
    assert trail("", ("A",)) == "A"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The parser parses, PARSES and parsed", {"parser", "parses", "parsed"}),
        ("an ox of 3 kg, v1.27 abc1def2", {"abc", "def"}),
        (
            "Café naïve_word don't the user's users’ they’ve it's",
            {"cafe", "naive", "word", "user", "users"},
        ),
        ("日本語のテキスト and 한국어 mixed日本", {"한국어"}),
        ("x" * 30 + " " + "y" * 31, {"x" * 30}),
        ("", set()),
    ],
)
def test_vocabulary_terms_are_words_without_stemming(text: str, terms: set[str]) -> None:
    assert vocabulary_terms(text) == terms


@given(st.text())
def test_any_text_has_valid_vocabulary_terms(text: str) -> None:
    terms = vocabulary_terms(text)
    assert all(3 <= len(term) <= 30 and term.isalpha() for term in terms)
    assert vocabulary_terms(" ".join(terms)) <= terms


@pytest.mark.parametrize(
    "text, about",
    [
        ("when is the pen test?", "pen test?"),
        ("What’s C++ for", "C++"),
        ("the state of the art", "state of the art"),
        ("how do I run -f", "run -f"),
        ("what is it", "what is it"),
        ("pen test", "pen test"),
        ("", ""),
    ],
)
def test_trim_stop_words_removes_them_at_both_ends_of_a_query(text: str, about: str) -> None:
    assert trim_stop_words(text) == about


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("de", "Abhängigkeit Abhängigkeiten"),
        ("fr", "donnée données"),
        ("es", "dependencia dependencias"),
        ("ru", "зависимость зависимостей зависимости"),
        ("it", "funzione funzioni"),
        ("pl", "plik pliki"),
        ("sv", "bilar bilarna"),
    ],
)
def test_inflections_of_other_languages_have_one_term(language: str, words: str) -> None:
    assert len(set(analyze(words, language))) == 1


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("de", "Die Datei ist nicht in dem Ordner", ["datei", "ordn"]),
        ("fr", "l'utilisateur n'est pas dans la base", ["utilis", "bas"]),
        ("ru", "что это и как это сделать", ["сдела"]),
        ("ja", "FastAPI の dependencies", ["fastapi", "の", "depend"]),
        ("vi", "không có", ["khong", "co"]),
    ],
)
def test_stop_words_of_other_languages_are_dropped(
    language: str, text: str, terms: list[str]
) -> None:
    assert analyze(text, language) == terms


def test_accents_do_not_matter_in_any_language() -> None:
    assert analyze("sécurité des données", "fr") == analyze("SECURITE des donnees", "fr")
    assert analyze("Überprüfung", "de") == analyze("uberprufung", "de")


def test_letters_that_are_no_accented_ones_are_kept() -> None:
    assert analyze("мой", "bg") != analyze("мои", "bg")
    assert analyze("ёлка") == analyze("елка")
    assert analyze("مُعَلِّم") == analyze("معلم")


def test_thai_text_is_found_by_any_part() -> None:
    assert set(analyze("ค้นหา")) <= set(analyze("การค้นหาข้อความ"))


def test_vowel_marks_of_indian_scripts_are_part_of_a_word() -> None:
    assert len(analyze("हिन्दी", "hi")) == 1


def test_a_query_has_the_terms_of_all_languages_without_its_own_stop_words() -> None:
    assert query_terms("die Abhängigkeiten", languages=("de", "en")) == ["abhang", "abhangigkeiten"]
    assert query_terms("die hard", languages=("en", "de")) == ["die", "hard"]
    assert query_terms("was ist das", languages=("de", "en")) == ["was", "ist", "das"]


@pytest.mark.parametrize(
    "word",
    ["capabilities", "capable", "visualizing", "visualise", "colours", "organization", "flies"],
)
def test_a_word_begins_with_a_surface_prefix_of_its_term(word: str) -> None:
    (term,) = analyze(word)
    assert word.startswith(surface_prefixes(term))


@given(st.text(alphabet="ab.Ne't \n\té", max_size=60))
def test_a_long_text_has_the_vocabulary_of_its_parts(text: str) -> None:
    whole = vocabulary_terms(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analyzer, "_PART_CHARS", 5)
        assert vocabulary_terms(text) == whole


def test_the_words_of_a_long_text_are_split_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []
    split = analyzer._words

    def counted(text: str) -> Sequence[str]:
        lengths.append(len(text))
        return split(text)

    monkeypatch.setattr(analyzer, "_words", counted)
    assert vocabulary_terms("wombat " * 300_000) == {"wombat"}
    assert sum(lengths) == 2_100_000
    assert max(lengths) < 600_000


@pytest.mark.parametrize(
    "text",
    [
        "what is Bouncer",
        "What's a Bouncer?",
        "what does Bouncer mean",
        "What does the Bouncer stand for?",
        "define Bouncer",
        "meaning of Bouncer",
    ],
)
def test_a_question_for_a_definition_names_its_term(text: str) -> None:
    assert defined_term(text) == "Bouncer"


@pytest.mark.parametrize(
    "text", ["Bouncer", "how do I restart Bouncer", "what is the best way to restart it", ""]
)
def test_other_queries_ask_for_no_definition(text: str) -> None:
    assert defined_term(text) == ""
