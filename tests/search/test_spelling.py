"""Spelling correction: compounds as the library writes them, and suggestions for typos."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.model import Batch
from marklight.ports import Tools
from marklight.query import Mode, Query
from marklight.search.spelling import Spelling, one_edit
from tests.contracts.builders import entry
from tests.oracle import MemoryEngine
from tests.search.building import features_by_id

PAGES = {
    "net.md": "The Wi-Fi password stands on the router.",
    "parts.md": "PS-4471 is the power supply; PX9000 is none. Version 1.20 has 202601 changes.",
    "mail.md": "Write an email on the webpage, or use the plugin. Each desk stands apart.",
    "lists.md": "Every drop down has a label, whatever Node.js thinks of its characters.",
    "trees.md": "Sign-in takes part of a login. It is a part of the file system. One word is no pass.",
    "files.md": "Each filesystem, and file system, is checked.",
    "kubernetes.md": "Kubernetes asks for authentication.",
    "cluster.md": "A Kubernetes cluster; a clusters' kubernetess.",
}


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    engine = MemoryEngine()
    with engine.writing(0):
        engine.commit(Batch(entries=tuple(entry(path, text) for path, text in PAGES.items())))
    with engine.snapshot() as snapshot:
        yield Tools(snapshot)


def correct(text: str, tools: Tools, mode: Mode = Mode.HYBRID) -> tuple[str, list[str]]:
    """Return the corrected text and the notices about other spellings."""
    notices: list[str] = []
    query = Spelling()(Query(text, mode=mode), Tools(tools.snapshot, notify=notices.append))
    assert query.text == text
    spellings = [notice for notice in notices if not notice.startswith("No document contains")]
    return "".join(query.other_spellings), spellings


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("wifi", "wi-fi"),
        ("Where is the WiFi password?", "Where is the wi-fi password?"),
        ("ps4471", "ps-4471"),
        ("PX-9000", "px9000"),
        ("px 9000", "px9000"),
        ("e-mail", "email"),
        ("an E‑Mail to whom", "an email to whom"),
        ("e-mails", "emails"),
        ("dropdown", "drop down"),
        ("dropdowns of wifi", "drop down of wi-fi"),
        ("nodejs", "node.js"),
        ("signin", "sign-in"),
        ("plug-in", "plugin"),
        ("plug_in", "plugin"),
        ("web-page-title", "webpage-title"),
    ],
)
def test_compounds_are_searched_as_the_library_writes_them(
    text: str, corrected: str, tools: Tools
) -> None:
    assert correct(text, tools) == (corrected, [])


@pytest.mark.parametrize(
    "text",
    [
        "Wi-Fi",
        "wi fi",
        "drop-down",
        "email password",
        "PS-4471",
        # It occurs as typed, or both words are in one passage.
        "file system",
        "file-system",
        "file/system check",
        "pass word",
        # Another number: 120 and 2026-01.
        "version 120",
        "2026-01",
        # Stop words are parts of other words by chance.
        "a part",
        "log in",
        "log n",
        "apartof",
        "don't",
        "日本語",
        "???",
        "zzz",
        "",
    ],
)
def test_a_query_that_needs_no_correction_stays_unchanged(text: str, tools: Tools) -> None:
    assert correct(text, tools) == ("", [])


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        ("kuberntes", "kubernetes"),
        ("Kubernetse", "kubernetes"),
        ("KUBERNETTES", "kubernetes"),
        ("kubermetes", "kubernetes"),
        ("authentification", "authentication"),
        ("clutser", "cluster"),
        ("charachhters", "characters"),
        ("pasword", "password"),
        ("logni", "login"),
    ],
)
def test_a_typo_gets_the_most_frequent_similar_word_suggested(
    typed: str, suggestion: str, tools: Tools
) -> None:
    # `kubernetess` is as similar to some of them, but occurs in one document fewer.
    notice = f'No passage contains "{typed}". Did you mean "{suggestion}"?'
    assert correct(f"{typed} password", tools) == ("", [notice])


@pytest.mark.parametrize(
    "text",
    [
        # Another word, too short to be sure, or wrong by more than a slip.
        *("groceries", "logn", "desl", "rauter", "lebal", "kubxrxxtes", "authenxxcation"),
        # Its first letter is seldom mistyped, and an ending is none of it.
        *("xubernetes", "supplyable", "router5"),
        # A name, a number, and what is nearly a word that says nothing.
        *("getKubernetse", "ps4472", "wihch"),
    ],
)
def test_other_words_get_no_suggestion(text: str, tools: Tools) -> None:
    assert correct(text, tools) == ("", [])


def test_few_words_are_corrected(tools: Tools) -> None:
    notices: list[str] = []
    typed = Query("kuberntes clutser authentification wifi")
    query = Spelling()(typed, Tools(tools.snapshot, notify=notices.append))
    assert len(notices) == 3
    assert query.other_spellings == ()


@pytest.mark.parametrize("mode", [Mode.SEMANTIC, Mode.CODE])
def test_semantic_and_code_search_are_not_corrected(mode: Mode, tools: Tools) -> None:
    assert correct("wifi kuberntes", tools, mode=mode) == ("", [])


def test_only_the_beginning_of_a_long_query_is_corrected(tools: Tools) -> None:
    assert correct("router " * 35 + "wifi", tools)[0].endswith("wi-fi")
    assert correct("router " * 36 + "wifi", tools)[0] == ""


def test_term_coverage_is_that_of_the_better_spelling(tools: Tools) -> None:
    query = Spelling()(Query("wifi"), tools)
    candidates = tools.snapshot.lexical.search(
        ["password", "stand"], {"body": 1.0}, query.filters, 9
    )
    lists = {"keyword": candidates}
    ids = {
        document.path: id
        for id, document in tools.snapshot.documents.owners([id for id, _ in candidates]).items()
    }
    features = features_by_id(lists, query, tools)
    assert (features[ids["net.md"]].coverage, features[ids["net.md"]].exact_phrase) == (1.0, 1.0)
    assert (features[ids["mail.md"]].coverage, features[ids["mail.md"]].exact_phrase) == (
        0.0,
        0.0,
    )
    as_typed = features_by_id(lists, Query("wifi"), tools)
    assert as_typed[ids["net.md"]].coverage == 0.0


@given(st.text("abcde", min_size=8, max_size=9), st.data())
def test_one_edit_is_symmetric(word: str, data: st.DataObject) -> None:
    other = data.draw(st.sampled_from(sorted(one_edit(word))))
    assert other != word
    # A letter that lacks at the end is an ending, and no slip.
    assert word in one_edit(other) or other == word[:-1]


def test_longer_words_allow_more_kinds_of_edits() -> None:
    assert one_edit("the") == set()
    assert one_edit("milk") == {"imlk", "mlik", "mikl"}
    assert {"tokeen", "tokne"} <= one_edit("token")
    assert not {"tokan", "toke", "atoken"} & one_edit("token")
    assert {"roters", "routters", "ruoters", "rooters"} <= one_edit("routers")


def completed(text: str, tools: Tools, *, prefix: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the text to search for and the completions of its last word."""
    query = Spelling()(Query(text, prefix=prefix), tools)
    return query.text, query.added_words


def test_a_single_word_that_no_passage_contains_is_completed(tools: Tools) -> None:
    notices: list[str] = []
    query = Spelling()(Query("Kuber"), Tools(tools.snapshot, notify=notices.append))
    assert (query.text, query.raw_text, query.typed_text) == ("kubernetes", "Kuber", "Kuber")
    assert query.added_words == query.spellings == ("kubernetes",)
    assert notices == ['No passage contains "Kuber". Searching for "kubernetes"']
    assert completed("passwo", tools) == ("password", ("password",))


@pytest.mark.parametrize("text", ["part", "the kuber", "zzz", "kuber.", "k", "日本", "kuber 4"])
def test_other_words_are_not_completed(text: str, tools: Tools) -> None:
    assert completed(text, tools) == (text, ())


def test_the_last_word_is_completed_while_it_is_typed(tools: Tools) -> None:
    assert completed("join a clus", tools, prefix=True) == ("join a cluster", ("cluster",))
    assert completed("join a clus ", tools, prefix=True) == ("join a clus ", ())
    # It is a word itself, in two pages; words that begin with it are in one.
    assert completed("part", tools, prefix=True) == ("part", ())
    query = Spelling()(Query("no pass", prefix=True), tools)
    assert (query.text, query.added_words) == ("no pass", ())


def test_more_frequent_words_are_searched_beside_an_unfinished_one() -> None:
    engine = MemoryEngine()
    texts = ["conf file", *["configuration of it"] * 4, *["confer"] * 3]
    with engine.writing(0):
        engine.commit(
            Batch(entries=tuple(entry(f"{at}.md", text) for at, text in enumerate(texts)))
        )
    with engine.snapshot() as snapshot:
        query = Spelling()(Query("edit conf", prefix=True), Tools(snapshot))
    assert query.text == "edit conf"
    # In four times as many documents as conf; confer is in three times as many.
    assert query.added_words == ("configuration",)
    assert query.spellings == ("edit conf", "edit configuration")


@given(st.text(), st.booleans())
def test_any_text_can_be_completed(text: str, prefix: bool) -> None:
    engine = MemoryEngine()
    with engine.snapshot() as snapshot:
        query = Spelling()(Query(text, prefix=prefix), Tools(snapshot))
    assert query.added_words == ()
