"""Language identification of documents and queries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text import languages
from marklight.text.languages import detect, normalize_code, query_languages
from tests.linear import demand_linear

TEXTS = {
    "en": "The garden needs water in the morning, before the sun stands high over the roofs of the town.",
    "de": "Der Garten braucht am Morgen Wasser, bevor die Sonne hoch über den Dächern der Stadt steht.",
    "fr": "Le jardin a besoin d'eau le matin, avant que le soleil ne soit haut au-dessus des toits de la ville.",
    "es": "El jardín necesita agua por la mañana, antes de que el sol esté alto sobre los tejados de la ciudad.",
    "it": "Il giardino ha bisogno di acqua la mattina, prima che il sole sia alto sopra i tetti della città.",
    "pt": "O jardim precisa de água pela manhã, antes que o sol esteja alto sobre os telhados da cidade, mas não à noite.",
    "nl": "De tuin heeft 's ochtends water nodig, voordat de zon hoog boven de daken van de stad staat.",
    "pl": "Ogród potrzebuje wody rano, zanim słońce stanie wysoko nad dachami miasta, bo ziemia jest sucha.",
    "sv": "Trädgården behöver vatten på morgonen, innan solen står högt över stadens tak och allt blir torrt.",
    "tr": "Bahçenin sabahları suya ihtiyacı var, güneş şehrin çatıları üzerinde yükselmeden önce sulanmalı.",
    "ru": "Саду нужна вода утром, пока солнце не стоит высоко над крышами города и земля ещё прохладная.",
    "uk": "Саду потрібна вода вранці, поки сонце не стоїть високо над дахами міста і земля ще прохолодна.",
    "ar": "تحتاج الحديقة إلى الماء في الصباح قبل أن ترتفع الشمس فوق أسطح المدينة",
    "ja": "庭は朝に水が必要です。太陽が町の屋根の上に高く昇る前に。",
    "zh": "花园早上需要浇水，在太阳高高升到城市屋顶之上以前。",
    "ko": "정원은 해가 도시 지붕 위로 높이 뜨기 전 아침에 물이 필요합니다.",
    "th": "สวนต้องการน้ำในตอนเช้าก่อนที่ดวงอาทิตย์จะขึ้นสูงเหนือหลังคาเมือง",
    "el": "Ο κήπος χρειάζεται νερό το πρωί, πριν ο ήλιος σταθεί ψηλά πάνω από τις στέγες της πόλης.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_sentence_is_detected(language: str) -> None:
    assert detect(TEXTS[language]) == language


@pytest.mark.parametrize("language", ["de", "ru", "ja", "zh"])
def test_code_and_addresses_do_not_count(language: str) -> None:
    code = "```python\ndef the_function_of_this(which, is_not, about_the_text):\n    return\n```\n"
    text = f"{code * 3}\n{TEXTS[language]} <https://the.example.org/of/this/and/that>\n\n{code * 3}"
    assert detect(text) == language


@pytest.mark.parametrize(
    "text", ["", "42", "# Installation", "`git rebase`", "kubectl apply -f", "OK"]
)
def test_too_little_text_has_no_language(text: str) -> None:
    assert detect(text) == ""


def test_some_foreign_words_do_not_change_the_language() -> None:
    assert detect(f"{TEXTS['en']} The word Weltschmerz is German, and 水 means water.") == "en"


@given(st.text(max_size=300))
def test_any_text_has_a_known_language_or_none(text: str) -> None:
    assert detect(text) in {"", *languages.CODES}
    own, *others = query_languages(text, {"de": 1})
    assert own in languages.CODES
    assert {own, *others} >= {"en"}
    assert {*others} <= {"de", "en"}


@pytest.mark.parametrize("piece", ["`", "```\n", "~~~a\n", "<", "](", "> ", "x", "水", "\n> ```"])
def test_the_time_is_linear_in_hostile_text(piece: str) -> None:
    demand_linear(detect, lambda size: piece * (size // len(piece)), 20_000)


@pytest.mark.parametrize(
    ("value", "code"),
    [("de", "de"), ("DE-at", "de"), ("pt_BR", "pt"), ("python", ""), ("", ""), ("english", "")],
)
def test_frontmatter_names_a_language_by_its_code(value: str, code: str) -> None:
    assert normalize_code(value) == code


@pytest.mark.parametrize(
    ("text", "of_documents", "expected"),
    [
        ("how do tokens expire", {"en": 9}, ("en",)),
        ("wie kann ich die Verbindung zur Datenbank prüfen", {"en": 9}, ("de", "en")),
        ("wie kann ich die Verbindung prüfen", {"de": 1, "fr": 9}, ("de", "en")),
        ("comment vérifier la connexion", {"de": 9, "fr": 1}, ("fr", "en")),
        ("データベースに接続する方法", {"en": 9}, ("ja", "en")),
        ("kubectl", {"en": 9, "python": 9}, ("en",)),
        ("kubectl get pods", {"ja": 5}, ("en",)),
        ("docker compose", {"ru": 5}, ("en",)),
        ("garden plan", {"ja": 50, "en": 1}, ("en",)),
        ("Häuser", {"de": 300, "en": 1000}, ("en", "de")),
        ("", {}, ("en",)),
    ],
)
def test_a_query_is_analyzed_by_the_rules_of_its_language_and_of_english(
    text: str, of_documents: dict[str, int], expected: tuple[str, ...]
) -> None:
    assert query_languages(text, of_documents) == expected


@pytest.mark.parametrize(
    "text", ["cook a chicken soup", "parse a date", "single electrode discharge"]
)
def test_a_few_documents_in_other_languages_do_not_make_a_short_query_foreign(text: str) -> None:
    assert query_languages(text, {"ca": 2, "en": 1000, "fr": 4, "it": 4, "ro": 1}) == ("en",)


def test_documents_without_a_language_count_as_english() -> None:
    assert languages.documents_by_language({"de": 1, "python": 3}, 5) == {"de": 1, "en": 4}
    assert languages.documents_by_language({"de": 5}, 5) == {"de": 5}
    few = languages.documents_by_language({"de": 1}, 9)
    for text in ("rust ownership", "parse a date", "cook a chicken soup"):
        assert query_languages(text, few)[0] == "en"


def test_a_language_of_very_few_documents_is_no_main_language() -> None:
    assert languages.main_languages({"en": 980, "fr": 15, "it": 5}) == ["en", "fr"]
    assert languages.main_languages({}) == []
