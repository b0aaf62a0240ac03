"""Escaped text of documents cannot control a terminal, reorder text, hide it or pose as output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.formatting import escape_json, one_line, quoted, visible, without_controls
from tests.forgery import BIDI, C1, DANGEROUS, ESCAPES, TAGS, texts

READABLE = [
    "שלום עולם, זה טקסט בעברית (עם סוגריים) ומספר 42.",
    "בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "مرحبا بالعالم، هذا نص عربي مع رقم ٤٢.",
    "می\u200cخواهم کتاب\u200cها را بخوانم",
    "क्\u200dष और क्\u200cष, ශ්\u200dරී",
    "👩\u200d💻 👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 🏳\ufe0f\u200d🌈 👍🏽 🇩🇪",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f and "
    "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "葛\U000e0100飾区、全角\u3000空白",
    "Sil\xadben\xadtren\xadnung, a\xa0b, ภาษา\u200bไทย",
    "naïve Ωμέγα Привет 日本語",
]


@pytest.mark.parametrize("text", READABLE)
def test_text_of_all_scripts_is_unchanged(text: str) -> None:
    assert visible(text) == text
    assert one_line(text) == text
    assert quoted(text) == f"> {text}"
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202egpj.exe", "a\\u202egpj.exe"),
        ("\u2066שלום\u2069", "\\u2066שלום\\u2069"),
        ("a\u2028b", "a\\u2028b"),
        ("x\U000e0041", "x\\U000e0041"),
        # A flag that Unicode does not recommend could carry any words.
        ("🏴\U000e0061\U000e0062\U000e007f", "🏴\\U000e0061\\U000e0062\\U000e007f"),
        # Data hidden in runs of invisible characters: the first may be orthography, the rest are not.
        ("a\u200b\u200c\u200b", "a\u200b\\u200c\\u200b"),
        ("a\ufe00\ufe01\U000e0100", "a\ufe00\\ufe01\\U000e0100"),
        (" \u200bx", " \\u200bx"),
        ("\ufeffx", "\\ufeffx"),
    ],
)
def test_hidden_and_bidirectional_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == one_line(text) == shown


@given(texts)
def test_no_text_keeps_a_dangerous_character(text: str) -> None:
    for shown in (visible(text), quoted(text), one_line(text), visible(visible(text))):
        assert not DANGEROUS.search(shown)
    assert visible(visible(text)) == visible(text)


@given(texts)
def test_quoting_marks_every_line_and_is_reversible(
    text: str,
) -> None:
    lines = quoted(text).splitlines()
    assert all(line == ">" or line.startswith("> ") for line in lines)
    assert "\n".join(line[2:] for line in lines) == visible(text)


@given(texts)
def test_a_name_stays_on_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@given(st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
def test_json_is_safe_to_print_and_equal_after_parsing(value: object) -> None:
    for indent in (None, 2):
        printed = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert not DANGEROUS.search(printed)
        assert json.loads(printed) == value


def test_json_escapes_are_those_of_json() -> None:
    assert escape_json('"\x7f\x9b\u202e\U000e0041"') == r'"\u007f\u009b\u202e\udb40\udc41"'


def test_a_pipe_gets_letters_of_all_scripts_and_no_terminal_controls() -> None:
    for text in (*READABLE, BIDI, TAGS):
        assert without_controls(text) == text
    assert not DANGEROUS.search(without_controls(f"{C1}{ESCAPES}"))
    assert without_controls("a\tb\nc") == "a\tb\nc"
