"""Documents as HTML: blocks know their lines, links lead on, and nothing in them can run."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.ingest.document import parse_document
from marklight.ingest.read import Source
from marklight.ingest.render import MAX_LINES, Rendered, render
from marklight.model import DocumentId, FileState
from tests.hostile import HOSTILE

TAGS = frozenset(
    "a abbr b bdi blockquote br caption cite code col colgroup dd del details dfn div dl dt em figcaption figure "
    "h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q rp rt ruby s samp small span strong sub summary sup table "
    "tbody td tfoot th thead time tr u ul var wbr".split()
)
ATTRIBUTES = frozenset(
    "id title lang dir data-lines data-plain href rel target alt start align colspan rowspan scope open datetime".split()
)
LEADS = re.compile(r"(https?|mailto|marklight):")


class Tame(HTMLParser):
    """Fails on whatever is not text."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, f"{name} of {tag}"
            assert name != "href" or LEADS.match(value or ""), value
            assert name != "id" or (value or "").startswith("part-")

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)


def shown(
    text: str, path: str = "guide/a.md", leads: dict[str, str] | None = None, line: int = 1
) -> Rendered:
    document = parse_document(DocumentId("default", path), Source(text, FileState(1, 1))).document

    def find(keys: tuple[str, ...]) -> str | None:
        return next((leads[key] for key in keys if leads and key in leads), None)

    return render(document, path, find, line)


def tame(html: str) -> None:
    parser = Tame(convert_charrefs=True)
    parser.feed(html)
    parser.close()


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_document_can_run_load_or_pose_as_the_page(text: str) -> None:
    tame(shown(f"# Before\n\n{text}\n\nAfter it.\n").html)
    tame(shown(text, "notes.txt").html)


@given(st.text(alphabet="<>/=\"'`&;:#()[]!*_-|{}%^~ \nabonsrcitpjvlemg0", max_size=200))
def test_no_text_whatever_becomes_more_than_text(text: str) -> None:
    tame(shown(text).html)


@given(
    st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=4),
    st.sampled_from(["\n\n", " ", "\n> ", "\n- ", ""]),
)
def test_nor_do_several_together(texts: list[str], between: str) -> None:
    tame(shown(between.join(texts)).html)


def test_every_block_says_which_lines_it_is() -> None:
    text = "---\ntags: [x]\n---\n# One\n\ntwo\nlines\n\n- item\n- other\n\n```py\ncode\n```\n\n| a |\n|---|\n| b |\n"
    html = shown(text).html
    assert '<h1 data-lines="4-4" id="part-one">One</h1>' in html
    assert '<p data-lines="6-7">two\nlines</p>' in html
    assert (
        '<li data-lines="10-10">other</li>' in html or '<li data-lines="10-11">other</li>' in html
    )
    assert '<pre data-lines="12-14"><code>code\n</code></pre>' in html
    assert '<tr data-lines="18-18">' in html
    assert "tags" not in html


def test_a_heading_has_the_anchor_of_the_outline() -> None:
    text = "# A b\n\n# A b\n\n## Named {#own}\n\n# Part 1\n"
    html = shown(text).html
    assert re.findall(r'id="([^"]+)"', html) == [
        "part-a-b",
        "part-a-b-1",
        "part-own",
        "part-part-1",
    ]
    assert "{#own}" not in html


def test_links_to_documents_lead_inside_and_others_out() -> None:
    leads = {"guide/tokens.md": "guide/tokens.md", "auth": "docs/auth.md", "up.md": "up.md"}
    html = shown(
        "[t](tokens.md#ex%20piry) [[Auth#Token refresh|auth]] <a href='../up.md'>up</a> [out](https://a.b/?c&d) "
        "[self](#part) [gone](gone.md) [[Gone]] ![[pic.png]] ![alt](pic.png) [m](mailto:a@b.c)",
        leads=leads,
    ).html
    found = re.findall(r"<a ([^>]*)>([^<]*)</a>", html)
    assert all(
        'target="_blank"' in each and 'rel="noopener noreferrer"' in each for each, _ in found
    )
    addresses = [(*re.findall(r'href="([^"]*)"', each), said) for each, said in found]
    assert addresses == [
        ("marklight:guide/tokens.md#ex%20piry", "t"),
        ("marklight:docs/auth.md#Token%20refresh", "auth"),
        ("marklight:up.md", "up"),
        ("https://a.b/?c&amp;d", "out"),
        ("marklight:guide/a.md#part", "self"),
        ("gone",),
        ("Gone",),
        ("mailto:a@b.c", "m"),
    ]
    assert html.count("<img alt=") == 2
    assert "src=" not in html


def test_a_link_may_be_defined_below_its_use() -> None:
    html = shown("[t][r]\n\n[r]: tokens.md\n", leads={"guide/tokens.md": "guide/tokens.md"}).html
    assert 'href="marklight:guide/tokens.md"' in html


def test_tasks_tables_and_folded_parts_look_as_they_are_meant() -> None:
    html = shown(
        "- [ ] open\n- [x] done\n\n|a|b|\n|-|-:|\n|1|2|\n\n<details><summary>S</summary>\n\n*in*\n\n</details>\n"
    ).html
    assert "☐ open" in html
    assert "☑ done" in html
    assert '<td align="right">2</td>' in html
    assert re.search(r"<details><summary>S</summary>\s*<p[^>]*><em>in</em></p>", html)


def test_plain_text_keeps_its_line_ends() -> None:
    html = shown("one\n two < 3\n\nthree\n", "notes.txt").html
    assert html.splitlines()[0] == '<p data-lines="1-2" data-plain="">one'
    assert " two &lt; 3</p>" in html
    assert '<p data-lines="4-4" data-plain="">three</p>' in html


def test_frontmatter_that_cannot_be_read_is_shown_as_text() -> None:
    assert (
        '<pre data-lines="1-3">---\n: [broken\n---</pre>'
        in shown("---\n: [broken\n---\n\n# A\n").html
    )


@pytest.mark.parametrize("line", [1, 5_000, 20_000])
def test_of_a_long_document_the_part_around_a_line_is_shown(line: int) -> None:
    text = "".join(f"# Part {number}\n\nSaid in {number}.\n\n" for number in range(5_000))
    found = shown(text, line=line)
    first, last = found.lines
    assert first <= line <= last
    assert last - first < MAX_LINES
    assert f'data-lines="{min(line, 19_999) // 4 * 4 + 1}' in found.html


def test_a_document_of_one_huge_line_is_shown_as_it_is() -> None:
    assert len(shown("word " * 200_000).html) > 900_000


@pytest.mark.parametrize("text", ["", "\n", "---\na: 1\n---\n", "\ufffd", "<", "[", "`" * 50])
def test_a_document_with_next_to_nothing_in_it_is_shown(text: str) -> None:
    tame(shown(text).html)


def test_html_that_a_parser_would_take_long_for_is_shown_as_it_is_written() -> None:
    many = "<p " + " ".join(f"a{number}=1" for number in range(50_000)) + ">"
    assert "&lt;p a0=1" in shown(many).html
    nested = shown("<i>x" * 100 + "\n\n" + ("x <b>" * 100 + "\n\n") * 250).html
    assert "<i>" in nested
    assert "&lt;b&gt;" in nested


def test_entities_and_escaped_characters_are_shown_as_what_they_mean() -> None:
    assert ">AT&amp;T, *not* ©</p>" in shown("AT&amp;T, \\*not\\* &copy;\n").html


def test_what_reorders_or_hides_text_is_seen_however_it_is_written() -> None:
    html = shown("a \u202e b &#x202e; <b>\u2066</b> <i>&#8238;</i>\n\n```\n\u202e\n```\n").html
    assert html.count("\\u202e") == 4
    assert html.count("\\u2066") == 1
    assert "\u202e" not in html


def test_hebrew_and_persian_are_shown_as_they_are() -> None:
    assert "שלום, می\u200cخواهم" in shown("שלום, می\u200cخواهم\n").html


def test_no_element_reorders_its_text() -> None:
    assert shown('<bdo dir="rtl">abc</bdo>\n').html.count("bdo") == 0
