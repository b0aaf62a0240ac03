"""Phrase matching, exact and fast, and the terms that preselect passages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text.analyzer import (
    analyze,
    contains_sequence,
    fold,
    has_cjk,
    has_words,
    matches_phrases,
    phrase_terms,
    strip_marks,
    tokenize,
)


def matches(phrase: str, *texts: str) -> bool:
    return matches_phrases([phrase], [], texts)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("to be or not", "whether to BE, or not"),
        ("rolling back", "**Rolling** back the deployment"),
        ("roll back", "roll-back"),
        ("cafe au lait", "Café au\nlait"),
        ("important note", "an _important_ note"),
        ("c++", "use C++ here"),
        (".net core", "ASP.NET Core"),
        ("don't", "I don’t know"),
        ("検索", "全文検索を行う"),
        ("本 go", "日本go"),
        ("索", "検索"),
    ],
)
def test_a_phrase_matches_case_insensitively_and_without_accents(phrase: str, text: str) -> None:
    assert matches(phrase, text)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("pod", "pods"),
        ("pods", "pod"),
        ("back rolling", "rolling back"),
        ("rolling deployment", "rolling back the deployment"),
        ("c", "C++"),
        ("c++", "c"),
        ("user", "the user's"),
        ("get user", "get_user"),
        ("文字", "文の字"),
        ("or not", "for nothing"),
    ],
)
def test_a_phrase_needs_the_same_inflections_order_and_adjacency(phrase: str, text: str) -> None:
    assert not matches(phrase, text)


def test_a_phrase_does_not_match_across_texts() -> None:
    assert not matches("rolling back", "rolling", "back")
    assert matches("rolling back", "x", "rolling back")


def test_an_excluded_phrase_matches_like_a_required_one() -> None:
    assert not matches_phrases([], ["draft"], ["a Draft"])
    assert matches_phrases([], ["draft"], ["two drafts"])
    assert matches_phrases(["two drafts"], ["draft"], ["two drafts"])


def test_a_phrase_without_words_matches_everything() -> None:
    assert matches_phrases(["!?", ""], ["—", "__"], ["anything"])
    assert not has_words("!? _")
    assert phrase_terms("!?") == []


def test_phrase_terms_are_terms_of_every_matching_text() -> None:
    assert phrase_terms("the running pods") == ["run", "pod"]
    assert phrase_terms("全文検索") == ["全文", "文検", "検索"]
    assert phrase_terms("to be") == phrase_terms("索") == phrase_terms("what’s") == []
    assert phrase_terms("user's") == phrase_terms("user’s") == ["user"]


PIECES = st.sampled_from(
    [*"ab_+#.'’ \n-日本索é", "++", "net", "the", "'s", "pods", "C", "ſ", "Å", "ﬁ", "ａ", "𝙱", "가"]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(before=TEXTS, phrase=TEXTS, after=TEXTS)
def test_a_text_with_a_phrase_has_its_terms(before: str, phrase: str, after: str) -> None:
    text = before + phrase + after
    if matches(phrase, text):
        assert set(phrase_terms(phrase)) <= set(analyze(text))
    if has_words(phrase):
        assert matches(phrase, phrase)
        assert matches(phrase, f"{before} {phrase} {after}")
        assert not matches(phrase, "")


@given(before=TEXTS, phrase=TEXTS, after=TEXTS, between=TEXTS)
def test_the_regular_expressions_agree_with_comparing_tokens(
    before: str, phrase: str, after: str, between: str
) -> None:
    for text in (before + phrase + after, before + between.join(phrase.split(" ")) + after):
        plain, needle = (
            [word for run in tokenize(fold(value).replace("’", "'")) if (word := strip_marks(run))]
            for value in (text, phrase)
        )
        if needle and not has_cjk(fold(phrase)):
            expected = any(
                plain[at : at + len(needle)] == needle for at in range(len(plain) - len(needle) + 1)
            )
            assert matches(phrase, text) == expected


@given(st.text(max_size=30), st.text(max_size=60))
def test_any_text_can_be_a_phrase(phrase: str, text: str) -> None:
    if matches(phrase, text):
        assert set(phrase_terms(phrase)) <= set(analyze(text))
    assert matches_phrases([phrase], [], [phrase])


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("Blue Box", "in the blue box under the sink", True),
        ("blue box", "blue,\n  box.", True),
        ("blue box", "a bluebox", False),
        ("blue box", "seablue box", False),
        ("blue box", "blue boxes", False),
        ("blue box", "blue boxes, and a blue box", True),
        ("blue box", "blue\0box", False),
        ("Dr. Okafor", "dr okafor said", True),
        ("a a b", "a a a b", True),
        ("blue box", "box blue", False),
        ("!?", "!?", False),
    ],
)
def test_contains_sequence_allows_only_punctuation_between_words(
    phrase: str, text: str, expected: bool
) -> None:
    assert contains_sequence(phrase, text) is expected
