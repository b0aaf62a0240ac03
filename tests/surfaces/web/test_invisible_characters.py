"""Invisible and reordering characters on the page are escaped; text of all scripts stays readable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from marklight.formatting import visible
from tests.forgery import BIDI, DANGEROUS, TAGS, TEXT
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import visiting
from tests.test_escaping import READABLE

NAME = "invoice\u202egpj.md"
HEBREW = "שלום עולם, می\u200cخواهم"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    files = {
        NAME: (
            f"---\ntags: ['a{BIDI}']\n---\n# Title {BIDI}\n\nThe gryphon {BIDI}{TAGS} {HEBREW}.\n\n"
            f"## Heading {BIDI}\n\n&#x202e;entity &#8238;other <bdo dir=rtl>over</bdo>"
            f' <span title="{BIDI}">t</span> ![picture {BIDI}](x.png)\n\n```\ncode {BIDI}\n```\n'
        ),
        "persian.md": "# Persian\n\nکتاب\u200cها gryphon می\u200cخواهم\n",
    }
    with serving(write(tmp_path_factory.mktemp("hidden") / "docs", files)) as each:
        yield each


def test_the_page_escapes_like_the_rest_of_the_program(browser: Browser, hidden: Served) -> None:
    texts = [
        *READABLE,
        TEXT,
        BIDI,
        TAGS,
        "a\u200b\u200c\u200b",
        "\ufeffx",
        " \u200bx",
        "a\rb",
        "🏴\U000e0061\U000e007f",
    ]
    with visiting(browser, f"http://{hidden.name}") as page:
        page.goto("/")
        shown = page.evaluate(
            "async texts => { const { visible } = await import('/page/dom.js'); return texts.map(visible) }",
            texts,
        )
    assert shown == [visible(text) for text in texts]


def test_invisible_characters_are_escaped_in_results_and_documents(
    browser: Browser, hidden: Served
) -> None:
    everything = (
        "() => [document.body.innerText, ...[...document.querySelectorAll('[title], [aria-label]')]"
        ".map(each => each.title + each.ariaLabel), document.title].join('\\n')"
    )
    with visiting(browser, f"http://{hidden.name}") as page:
        page.goto("/?q=gryphon")
        expect(page.locator("#results .path").first).to_be_visible()
        seen = page.evaluate(everything)
        assert not DANGEROUS.search(seen.replace("\n", ""))
        assert "invoice\\u202egpj.md" in seen
        assert HEBREW in seen
        assert "کتاب\u200cها" in seen
        for address in (f"/?open={NAME}", f"/?graph={NAME}", "/"):
            page.goto(address)
            expect(page.locator("#text > *, #graph .drawing, #home section").first).to_be_visible()
            page.wait_for_timeout(500)
            seen = page.evaluate(everything)
            assert not DANGEROUS.search(seen.replace("\n", "")), address
        page.goto(f"/?open={NAME}")
        expect(page.locator("#text")).to_contain_text("\\u202eentity \\u202eother over")
        assert page.locator("#text bdo").count() == 0


def test_query_terms_are_marked_without_changing_their_joiners(
    browser: Browser, hidden: Served
) -> None:
    with visiting(browser, f"http://{hidden.name}") as page:
        page.goto("/?q=کتاب gryphon")
        found = page.locator("#results li", has_text="persian.md").locator(".snippet")
        expect(found).to_contain_text("کتاب\u200cها")
        assert found.locator("mark").count() >= 1
