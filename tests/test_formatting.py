"""Answers as text and as HTML for notebooks; text of documents is escaped."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Answer, Hit
from marklight.query import Query
from marklight.surfaces.render import answer_as
from tests.making import chunk, library, write

HOSTILE = '<script>alert("x")</script> & \x1b[2J\x00 <img src=x onerror=alert(1)> </pre>'


def answer(text: str, path: str = "a.md", title: str = "A", notice: str = "") -> Answer:
    one = replace(chunk("a", text, path), title=title)
    return Answer(Query("who"), (Hit(one, 0.834),), notices=(notice,) if notice else ())


class Tags(HTMLParser):
    """Collect the tags of a page and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_passage_in_a_notebook_is_text_and_not_html() -> None:
    page = Tags(answer(HOSTILE, path="<b>.md", title=HOSTILE, notice=HOSTILE)._repr_html_())
    assert page.tags <= {"ol", "li", "b", "pre", "p", "i"}
    assert '<script>alert("x")</script>' in page.text
    assert "\x1b" not in page.text
    assert "\x00" not in page.text
    assert "\\x1b[2J" in page.text


@given(st.text(), st.text())
def test_no_text_becomes_a_tag_or_a_control_character(text: str, title: str) -> None:
    page = Tags(answer(text, title=title)._repr_html_())
    assert page.tags <= {"ol", "li", "b", "pre"}
    assert not any(ord(character) < 32 and character not in "\n\t" for character in page.text)


def test_str_is_the_text_of_the_command_line(tmp_path: Path) -> None:
    text = HOSTILE.replace("\x00", "")  # NUL makes a file binary
    write(tmp_path, {"a.md": f"# A\n\nwords {text}\n", "b.md": "words and more words\n"})
    with library(tmp_path) as lib:
        found = lib.search("words", min_confidence=0.0)
        assert len(found.hits) == 2
        assert str(found) == answer_as(found, "text")
        assert str(found.hits[0]) in str(found)
        nothing = lib.search("zzzz", mode="keyword")
    assert str(nothing) == "No passage matches the query"
    assert nothing._repr_html_() == f"<p>{nothing}</p>"


def test_repr_is_one_short_line() -> None:
    assert repr(answer("x")) == "<Answer to 'who': 1 result, best 0.83>"
    long = replace(answer("x"), query=Query("a\n" * 500))
    assert "\n" not in repr(long)
    assert len(repr(long)) < 200
    assert repr(replace(long, hits=(), query=Query("q"))) == "<Answer to 'q': 0 results>"
