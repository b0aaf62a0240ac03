"""The unfinished last word on the page: completed while typing, and kept for more results, filters and after indexing."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from marklight.library.progress import IndexingProgress
from marklight.search import probability
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import PAGES, typed, visiting


def test_the_last_word_may_be_unfinished_while_typing(page: Page) -> None:
    sent: list[dict[str, list[str]]] = []
    page.on("request", lambda request: sent.append(parse_qs(urlsplit(request.url).query)))
    page.goto("/")
    expect(page.locator("#q")).to_be_focused()
    typed(page, "zeb")
    assert [each for each in sent if "q" in each][-1]["prefix"] == ["true"]
    first = page.locator("#results .section:not(.named) li").first
    expect(first).to_contain_text("zebra", ignore_case=True)
    assert {each.lower() for each in first.locator("mark").all_inner_texts()} == {"zebra"}
    with page.expect_response(lambda reported: "/api/search" in reported.url):
        page.keyboard.press("Enter")
    assert "prefix" not in [each for each in sent if "q" in each][-1]
    page.wait_for_url(
        lambda url: parse_qs(urlsplit(url).query)["q"] == ["zeb"] and "prefix" not in url
    )


def test_more_results_and_filters_keep_the_unfinished_last_word(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probability, "TAIL", 0.0)
    everything = {"confidence": {"threshold": 0.0}}
    folder = write(tmp_path / "docs", PAGES)
    with (
        serving(folder, search=everything) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        sent: list[dict[str, list[str]]] = []

        def record(request: Request) -> None:
            if "/api/search" in request.url or "/api/list" in request.url:
                sent.append(parse_qs(urlsplit(request.url).query))

        page.on("request", record)
        page.goto("/")
        expect(page.locator("#q")).to_be_focused()
        typed(page, "bafin zeb")
        links = page.locator("#results a.row")
        expect(links).to_have_count(20)
        assert links.first.inner_text().startswith("Zebra")
        page.get_by_role("button", name="More results").click()
        expect(page.locator("#message")).to_have_text("30 results")
        assert sum(each.startswith("Zebra") for each in links.all_inner_texts()) == 25
        assert (sent[-1]["prefix"], sent[-1]["limit"]) == (["true"], ["50"])
        page.wait_for_url(lambda url: "limit=50" in url and "prefix=1" in url)
        page.reload()
        expect(page.locator("#message")).to_have_text("30 results")
        page.locator("#filters summary").click()
        page.get_by_label("Path", exact=True).fill("many/*")
        expect(page.locator("#message")).to_have_text("20 results")
        assert (sent[-1]["prefix"], sent[-1]["path"]) == (["true"], ["many/*"])
        page.get_by_role("button", name="Documents").click()
        expect(page.locator("#results .listed li").first).to_be_visible()
        assert sent[-1]["prefix"] == ["true"]
        # Enter finishes the word, and a filter does not reopen it.
        page.locator("#q").press("Enter")
        page.wait_for_url(lambda url: "prefix" not in url)
        page.get_by_role("button", name="Documents").click()
        expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
        page.locator("#filters summary").click()
        page.get_by_label("Path", exact=True).fill("")
        page.wait_for_url(lambda url: "path" not in url)
        expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
        assert "prefix" not in sent[-1]


def test_the_unfinished_last_word_is_kept_when_indexing_ends(page: Page, served: Served) -> None:
    following = served.host.watcher
    following.progress = IndexingProgress("Embedding passages", 1, 2)
    try:
        page.goto("/")
        expect(page.locator("#server-status")).to_contain_text("Indexing, 50 %")
        typed(page, "zeb")
        with page.expect_request(lambda request: "/api/search" in request.url) as again:
            following.progress = None
        assert parse_qs(urlsplit(again.value.url).query)["prefix"] == ["true"]
    finally:
        following.progress = None
