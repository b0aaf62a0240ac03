"""Hostile documents and URLs run no script on the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.hostile import HOSTILE, RUN
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import visiting

NAMED = f"<img src=x onerror={RUN}>"
COUNT = 8
"""Browser pages over which the documents are spread."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    files = {
        f"{at}.md": f"# Document {at}\n\n{text}\n\nThe end of {at}.\n"
        for at, text in enumerate(HOSTILE)
    }
    files["all.md"] = "\n\n".join(HOSTILE)
    files["named.md"] = (
        f"---\ntitle: '{NAMED}'\ntags: ['{NAMED}', \"<script>{RUN}</script>\"]\n---\n\n"
        f"# {NAMED}\n\nThe gryphon `{NAMED}` {NAMED}\n\n## <script>{RUN}</script>\n\n[[{NAMED}]] [[0]]\n"
    )
    files["a'\"&#x3c;b.md"] = f"# Odd\n\nThe basilisk. [[named|{NAMED}]]\n"
    with serving(write(tmp_path_factory.mktemp("hostile") / "docs", files)) as each:
        yield each


@pytest.mark.parametrize("part", range(COUNT))
def test_a_hostile_document_runs_no_script_when_it_is_read(
    browser: Browser, hostile: Served, part: int
) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto("/")
        for at in range(part, len(HOSTILE), COUNT):
            read(page, f"{at}.md")
            for link in page.locator("#view-text a[href]").all():
                address = link.get_attribute("href") or ""
                assert address.startswith(("/?", "http://", "https://", "mailto:")), address
            assert (
                page.locator(
                    "#view-text [onclick], #view-text [onerror], #view-text [style], #view-text form"
                ).count()
                == 0
            )


def read(page: Page, name: str) -> None:
    """By an address and without a reload: whatever ran before would still be seen."""
    page.evaluate(
        "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')) }",
        f"/?open={name}",
    )
    expect(page.locator("#pane-place")).to_have_text(name)
    expect(page.locator("#view-text [data-lines]").first).to_be_attached()
    if page.locator("#view-text [data-lines]", has_text="over me").count():
        page.get_by_text("over me").hover()
        page.get_by_text("over me").click()
    assert page.evaluate("window.ran") is None


def test_all_attacks_in_one_document_run_no_script(browser: Browser, hostile: Served) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto("/?open=all.md")
        expect(page.locator("#view-text [data-lines]").first).to_be_attached()
        # The page's own parts are still its own.
        page.locator("#q").fill('"gryphon"')
        expect(page.locator("#results .path").first).to_have_text("named.md")


def test_titles_headings_tags_and_names_are_text(browser: Browser, hostile: Served) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto('/?q="gryphon"')
        expect(page.locator("#results h3").first).to_contain_text("onerror")
        assert page.locator("#results img, #results script").count() == 0
        for view in ("text", "outline", "links", "graph"):
            page.goto(f"/?q=gryphon&open=named.md&view={view}")
            expect(page.locator(f"#view-{view} > *").first).to_be_attached()
            expect(page.locator("#pane-title")).to_contain_text("onerror")
            assert page.locator("#pane img, #pane script").count() == 0
        page.goto('/?q="basilisk"')
        page.locator("#results h3 a").first.click()
        expect(page.locator("#view-text")).to_contain_text("basilisk")


@pytest.mark.parametrize(
    "address",
    [
        f"/?q=<script>{RUN}</script>",
        f"/?q=x&open=<img src=x onerror={RUN}>",
        f"/?open=javascript:{RUN}",
        "/?open=../../../etc/passwd",
        "/?open=//outside.invalid/x",
        f'/?open=0.md&at="><script>{RUN}</script>&lines=1-99999999999',
        f"/?q=x&collection=<script>{RUN}</script>&tag=<b>&kind=<b>&limit=1e9&view=__proto__",
    ],
)
def test_a_hostile_url_runs_no_script(browser: Browser, hostile: Served, address: str) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto(address)
        expect(page.locator("#state .state, #results > li, #view-text > *").first).to_be_attached()
