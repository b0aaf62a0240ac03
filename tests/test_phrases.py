"""Exact phrases: what stands in a text, and what an index may narrow by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.text import analyze, contains_sequence, has_words, matches_phrases, phrase_terms
from marklight.text.analyzer import fold, has_cjk, strip_marks, tokenize


def found(phrase: str, *texts: str) -> bool:
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
def test_a_phrase_is_found_as_it_is_written(phrase: str, text: str) -> None:
    assert found(phrase, text)


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
def test_endings_order_and_gaps_count(phrase: str, text: str) -> None:
    assert not found(phrase, text)


def test_a_phrase_stands_in_one_text_and_does_not_reach_into_the_next() -> None:
    assert not found("rolling back", "rolling", "back")
    assert found("rolling back", "x", "rolling back")


def test_without_is_the_same_test_negated() -> None:
    assert not matches_phrases([], ["draft"], ["a Draft"])
    assert matches_phrases([], ["draft"], ["two drafts"])
    assert matches_phrases(["two drafts"], ["draft"], ["two drafts"])


def test_a_phrase_without_words_asks_for_nothing() -> None:
    assert matches_phrases(["!?", ""], ["—", "__"], ["anything"])
    assert not has_words("!? _")
    assert phrase_terms("!?") == []


def test_only_words_that_every_such_text_has_narrow() -> None:
    assert phrase_terms("the running pods") == ["run", "pod"]
    assert phrase_terms("全文検索") == ["全文", "文検", "検索"]
    assert phrase_terms("to be") == phrase_terms("索") == phrase_terms("what’s") == []
    assert phrase_terms("user's") == phrase_terms("user’s") == ["user"]


PIECES = st.sampled_from(
    [*"ab_+#.'’ \n-日本索é", "++", "net", "the", "'s", "pods", "C", "ſ", "Å", "ﬁ", "ａ", "가"]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(before=TEXTS, phrase=TEXTS, after=TEXTS)
def test_what_holds_a_phrase_holds_its_words(before: str, phrase: str, after: str) -> None:
    text = before + phrase + after
    if found(phrase, text):
        assert set(phrase_terms(phrase)) <= set(analyze(text))
    if has_words(phrase):
        assert found(phrase, phrase)
        assert found(phrase, f"{before} {phrase} {after}")
        assert not found(phrase, "")


@given(before=TEXTS, phrase=TEXTS, after=TEXTS, between=TEXTS)
def test_what_is_quick_to_see_is_what_comparing_run_by_run_finds(
    before: str, phrase: str, after: str, between: str
) -> None:
    for text in (before + phrase + after, before + between.join(phrase.split(" ")) + after):
        plain, needle = (
            [word for run in tokenize(fold(each).replace("’", "'")) if (word := strip_marks(run))]
            for each in (text, phrase)
        )
        if needle and not has_cjk(fold(phrase)):
            stands = any(
                plain[at : at + len(needle)] == needle for at in range(len(plain) - len(needle) + 1)
            )
            assert found(phrase, text) == stands


@given(st.text(max_size=30), st.text(max_size=60))
def test_no_phrase_is_too_odd(phrase: str, text: str) -> None:
    if found(phrase, text):
        assert set(phrase_terms(phrase)) <= set(analyze(text))
    assert matches_phrases([phrase], [], [phrase])


@pytest.mark.parametrize(
    ("phrase", "text", "stands"),
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
def test_words_stand_together_where_nothing_but_signs_is_between_them(
    phrase: str, text: str, stands: bool
) -> None:
    assert contains_sequence(phrase, text) is stands
