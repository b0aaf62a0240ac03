"""Styles, hyperlinks and rendered places."""

from __future__ import annotations

import io
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.answer import Answer, Hit
from marklight.errors import SettingsError
from marklight.formatting import PLAIN, Style, hit_text, hyperlink
from marklight.library.configuration import Terminal
from marklight.model import DocumentId, Heading
from marklight.query import Query
from marklight.report import Extract, Outline
from marklight.surfaces import render
from marklight.surfaces.render import style_for
from tests.making import chunk, hits_of

_SIGNS = re.compile(r"\x1b\[\d+m|\x1b\]8;;[^\x1b]*\x1b\\")
_TARGET = re.compile(r"\x1b\]8;;([^\x1b]+)\x1b\\")
FOLDER = Path("/notes").absolute()
CLICKABLE = Style(escapes=True, folders={"default": FOLDER})


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def bare(text: str) -> str:
    return _SIGNS.sub("", text)


def test_a_hyperlink_has_an_empty_host() -> None:
    assert hyperlink("a.md:1-2", Path("/notes/a b.md")).endswith(
        "/notes/a%20b.md\x1b\\a.md:1-2\x1b]8;;\x1b\\"
    )
    assert hyperlink("x", FOLDER / "a.md").startswith("\x1b]8;;file:///")


NAMES = st.text(
    st.characters(exclude_characters="/\\:\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))


@given(NAMES)
def test_a_hyperlink_is_ascii_for_any_file_name(name: str) -> None:
    [target] = _TARGET.findall(hyperlink("here", FOLDER / name))
    assert target.isascii()
    assert target.isprintable()
    assert " " not in target
    assert urlsplit(target).netloc == ""
    assert Path(url2pathname(urlsplit(target).path)) == FOLDER / name
    assert unquote(target).endswith(name)


@given(NAMES)
def test_the_text_is_the_same_with_and_without_escape_sequences(name: str) -> None:
    hits = hits_of({name: 0.5, f"{name} too": 0.25})
    answer = Answer(Query("words"), hits)
    drawn = render.answer_as(answer, "text", CLICKABLE)
    assert len(_TARGET.findall(drawn)) == len(hits)
    assert bare(drawn) == render.answer_as(answer, "text")
    extract = Extract(DocumentId("default", name), "T", ("T", "H"), (3, 9), "the text")
    assert bare(render.extract_text(extract, CLICKABLE)) == render.extract_text(extract)


def test_the_lines_of_an_outline_are_hyperlinks() -> None:
    outline = Outline(DocumentId("default", "a.md"), (Heading(1, "Top", "top", (1, 9)),))
    drawn = render.outline_text(outline, CLICKABLE)
    assert bare(drawn) == render.outline_text(outline) == ":1-9  Top  #top"
    assert _TARGET.findall(drawn) == [(FOLDER / "a.md").as_uri()]


def test_a_line_of_a_passage_that_looks_like_a_place_is_quoted() -> None:
    lookalike = "[2] secret.md:1-2 § Not > A place (0.99)"
    drawn = hit_text(Hit(chunk("a", lookalike), 0.5), label="[1] ", style=CLICKABLE)
    assert drawn.splitlines()[1] == f"> {lookalike}"


def test_formats_for_programs_contain_no_escape_sequences() -> None:
    answer = Answer(Query("words"), hits_of({"a": 0.5}))
    for format in set(render.FORMATS) - {"text"}:
        assert "\x1b" not in render.answer_as(answer, format, CLICKABLE)


@pytest.mark.parametrize(
    ("stream", "environment", "escapes"),
    [
        (Tty(), {"TERM": "xterm-256color"}, True),
        (Tty(), {}, True),
        (Tty(), {"NO_COLOR": "1"}, False),
        (Tty(), {"NO_COLOR": ""}, True),
        (Tty(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm-256color"}, False),
    ],
)
def test_escape_sequences_depend_on_terminal_and_environment(
    stream: io.StringIO, environment: dict[str, str], escapes: bool
) -> None:
    assert style_for(stream, environment, {}).escapes is escapes


def test_a_document_of_an_unknown_collection_is_not_linked() -> None:
    assert CLICKABLE.link("x", DocumentId("other", "a.md")) == "x"
    assert PLAIN.link("x", DocumentId("default", "a.md")) == "x"


def test_a_hyperlink_follows_the_configured_template() -> None:
    style = Style(True, {"default": FOLDER}, "vscode://file{path}:{line}")
    extract = Extract(DocumentId("default", "a b.md"), "T", ("H",), (7, 9), "the text")
    [target] = _TARGET.findall(render.extract_text(extract, style))
    assert target == f"vscode://file{FOLDER.as_uri().removeprefix('file://')}/a%20b.md:7"


@pytest.mark.parametrize(
    "link", ["code {path}", "vscode://file", "x://{path}\x1b", "ed://{path} é"]
)
def test_an_invalid_template_is_rejected(link: str) -> None:
    with pytest.raises(SettingsError, match=r"terminal\.link"):
        Terminal(link=link)


def test_the_color_option_overrides_the_terminal() -> None:
    pipe, terminal = io.StringIO(), Tty()
    assert style_for(pipe, {}, {}, color="always").escapes
    assert style_for(pipe, {"NO_COLOR": "1"}, {}, color="always").escapes
    assert not style_for(terminal, {}, {}, color="never").escapes
    assert style_for(terminal, {}, {}).escapes
    assert not style_for(terminal, {"NO_COLOR": "1"}, {}).escapes
    assert not style_for(terminal, {"TERM": "dumb"}, {}).escapes
