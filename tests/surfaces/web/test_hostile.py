"""Hostile documents and URLs run no script on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

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
            for link in page.locator("#text a[href]").all():
                address = link.get_attribute("href") or ""
                assert address.startswith(("/?", "http://", "https://", "mailto:")), address
            assert (
                page.locator("#text [onclick], #text [onerror], #text [style], #text form").count()
                == 0
            )


def read(page: Page, name: str) -> None:
    """By an address and without a reload: whatever ran before would still be seen."""
    page.evaluate(
        "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')) }",
        f"/?open={name}",
    )
    expect(page.locator("#place")).to_have_text(name)
    expect(page.locator("#text [data-lines]").first).to_be_attached()
    if page.locator("#text [data-lines]", has_text="over me").count():
        page.get_by_text("over me").hover()
        page.get_by_text("over me").click()
    assert page.evaluate("window.ran") is None


def test_all_attacks_in_one_document_run_no_script(browser: Browser, hostile: Served) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto("/?open=all.md")
        expect(page.locator("#text [data-lines]").first).to_be_attached()
        # The page's own parts are still its own.
        page.locator("#q").fill('"gryphon"')
        expect(page.locator("#results .path").first).to_have_text("named.md")


def test_titles_headings_tags_and_names_are_text(browser: Browser, hostile: Served) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto('/?q="gryphon"')
        expect(page.locator("#results .title").first).to_contain_text("onerror")
        assert page.locator("#results img, #results script").count() == 0
        page.goto("/?q=gryphon&open=named.md")
        expect(page.locator("#rail .links").first).to_be_visible()
        expect(page).to_have_title(re.compile("onerror"))
        assert page.locator("#reader img, #rail img, main script").count() == 0
        page.goto("/?graph=named.md")
        expect(page.locator("#graph .drawing").first).to_be_attached()
        page.goto("/")
        expect(page.locator("#home section").first).to_be_visible()
        assert page.locator("#home img, #home script").count() == 0
        page.goto('/?q="basilisk"')
        page.locator("#results a.row").first.click()
        expect(page.locator("#text")).to_contain_text("basilisk")


def test_images_formulas_callouts_and_diagrams_run_nothing_and_request_nothing_outside(
    browser: Browser, tmp_path: Path
) -> None:
    script = f"<script>top.{RUN};fetch('https://outside.invalid/')</script>"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="top.{RUN}">{script}<image href="https://outside.invalid/x.png"/></svg>'
    text = (
        "# Hostile\n\n![[evil.svg]] ![x](evil.svg) <img src=evil.svg onerror=window.ran=1> ![y](https://outside.invalid/y.png)\n\n"
        f'> [!note]- {script}\n> <img src=x onerror={RUN}>\n\n!!! tip "<b onclick={RUN}>"\n    {script}\n\n'
        f"$<img src=x onerror={RUN}>$ $\\href{{javascript:{RUN}}}{{x}}$\n\n$$\n{script}\n$$\n\n"
        f"```mermaid\ngraph TD; A[{script}]\n```\n\n```html\n{script}\n```\n\n![[other]]\n\nEnd[^1]\n\n[^1]: {script}\n\n"
        "::: note <img src=//outside.invalid/z.png>\nx\n:::\n\n![[other#^b]]\n\n{{< x <script> >}} {* <script> *}\n"
    )
    folder = write(
        tmp_path / "docs",
        {
            "a.md": text,
            "other.md": f"# {script}\n\n{script} <img src=x onerror={RUN}> ^b\n",
            "evil.svg": svg,
        },
    )
    with serving(folder) as served, visiting(browser, f"http://{served.name}") as page:
        page.goto("/?open=a.md")
        image = page.locator("#text img").first
        expect(image).to_have_attribute("src", "/api/files/evil.svg")
        for fold in page.locator("#text summary").all():
            fold.click()
        page.wait_for_function(
            "[...document.querySelectorAll('#text img')].every(image => image.complete)"
        )
        assert (
            page.locator("#text script, #text [onclick], #text [onerror], #text [onload]").count()
            == 0
        )
        assert all(
            (each.get_attribute("src") or "").startswith("/api/files/")
            for each in page.locator("#text img").all()
        )
        # By itself, the file has a policy of its own, which blocks its script.
        alone = browser.new_page()
        requested: list[str] = []
        alone.on("response", lambda response: requested.append(response.url))
        alone.goto(f"http://{served.name}/api/files/evil.svg")
        assert alone.evaluate("window.ran ?? null") is None
        assert requested == [f"http://{served.name}/api/files/evil.svg"]
        alone.close()


@pytest.mark.parametrize(
    "address",
    [
        f"/?q=<script>{RUN}</script>",
        f"/?q=x&open=<img src=x onerror={RUN}>",
        f"/?graph=<img src=x onerror={RUN}>&depth=<b>",
        f"/?open=javascript:{RUN}",
        "/?open=../../../etc/passwd",
        "/?open=//outside.invalid/x",
        f'/?open=0.md&at="><script>{RUN}</script>&lines=1-99999999999',
        f"/?q=x&collection=<script>{RUN}</script>&tag=<b>&kind=<b>&limit=1e9&graph=__proto__",
    ],
)
def test_a_hostile_url_runs_no_script(browser: Browser, hostile: Served, address: str) -> None:
    with visiting(browser, f"http://{hostile.name}") as page:
        page.goto(address)
        expect(
            page.locator("#state .state, #results li, #text > *, #home section, #graph p").first
        ).to_be_attached()
