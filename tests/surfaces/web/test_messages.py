"""Messages of the page: no documents, no results, errors, indexing, a stopped server."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from marklight.library.progress import IndexingProgress
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import visiting

SEEN_HEADINGS = """() => {
    window.seen = 0;
    new MutationObserver(() => { if (document.querySelector("#state h2")) window.seen += 1; })
        .observe(document.body, { subtree: true, childList: true });
}"""


def test_a_new_folder_can_be_searched_and_edits_are_found(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Badgers\n\nBadgers dig setts.\n"})
    with serving(folder, indexed=False) as each, visiting(browser, f"http://{each.name}") as page:
        page.goto("/")
        page.keyboard.type("setts")
        expect(page.locator("#results .path")).to_have_text(["a.md"])
        write(
            folder,
            {
                "a.md": "# Badgers\n\nBadgers eat earthworms.\n",
                "b.md": "# Otters\n\nOtters build holts.\n",
            },
        )
        page.locator("#q").fill("earthworms")
        expect(page.locator("#results .path").first).to_have_text("a.md")
        expect(page.locator("#results mark").first).to_have_text("earthworms")
        page.locator("#q").fill("holts")
        expect(page.locator("#results .path").first).to_have_text("b.md")


def test_an_empty_library_shows_its_folder(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    with serving(tmp_path / "docs") as each, visiting(browser, f"http://{each.name}") as page:
        page.goto("/")
        expect(page.locator("#home")).to_contain_text("There are no documents yet")
        expect(page.locator("#home code")).to_have_text(str(tmp_path / "docs"))
        page.keyboard.type("anything")
        expect(page.locator("#message")).to_have_text("There are no documents")


def test_an_abstention_is_shown_with_the_closest_passages_below(
    browser: Browser, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "docs", {"a.md": "# A\n\nThe heron.\n", "b.md": "# B\n\nThe egret.\n"}
    )
    # Nothing is as likely as that, whatever the model.
    with (
        serving(folder, search={"confidence": {"threshold": 1.0}}) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        page.goto("/?q=heron+nests")
        expect(page.locator("#state h2")).to_contain_text("No passage is likely to answer this")
        assert "--" not in page.locator("#state").inner_text()
        expect(page.locator("#state p")).to_have_text("The closest passages:")
        expect(page.locator("#results .path").first).to_have_text("a.md")
        page.get_by_role("button", name="More results").click()
        expect(page.locator("#message")).to_contain_text("unlikely ones included")
        page.wait_for_url(re.compile("nearest=1"))
        expect(page.locator("#results :focus")).to_have_count(1)


def test_without_candidates_the_closest_passages_are_not_offered(page: Page) -> None:
    page.goto("/?q=zebra&path=nowhere/**")
    expect(page.locator("#state h2")).to_have_text("No results")
    expect(page.locator("#state p")).to_contain_text("No passage matches path:nowhere/**")
    expect(page.locator("#state button")).to_have_text(["Search without filters"])


def test_a_stopped_server_is_reported_until_it_is_back(browser: Browser, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs", {"a.md": "# A\n\nThe heron.\n", "b.md": "# B\n\nThe egret.\n"}
    )
    with serving(folder) as first, visiting(browser, f"http://{first.name}") as page:
        page.goto("/?q=heron")
        expect(page.locator("#results li").first).to_contain_text("heron")
        first.leave()
        page.locator("#q").fill("egret")
        expect(page.locator("#server-status")).to_contain_text("The server does not answer")
        with serving(folder, port=first.port):
            expect(page.locator("#server-status")).to_be_hidden()
            expect(page.locator("#results .path").first).to_have_text("b.md")


def test_indexing_progress_is_shown(page: Page, served: Served) -> None:
    following = served.host.watcher
    following.progress = IndexingProgress("Embedding passages", 42, 100)
    try:
        page.goto("/?q=zebra")
        expect(page.locator("#server-status")).to_contain_text("Indexing, 42 %")
        expect(page.locator("#results li").first).to_be_visible()
        expect(page.get_by_role("progressbar", name="Indexing")).to_have_attribute("value", "42")
    finally:
        following.progress = None
    expect(page.locator("#server-status")).to_be_hidden()


def test_an_invalid_query_shows_the_hint(page: Page) -> None:
    page.goto("/?q=token&after=some+day")
    expect(page.locator("#state h2")).to_have_text("Invalid query")
    expect(page.locator("#state")).to_contain_text("2026-01-31")


def test_an_interrupted_answer_can_be_retried(page: Page) -> None:
    page.route("**/api/search/stream*", lambda route: route.fulfill(status=500, body="oh"))
    page.goto("/?q=zebra")
    expect(page.locator("#state h2")).to_have_text("The search failed")
    page.unroute("**/api/search/stream*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#results li").first).to_be_visible()


def test_an_overloaded_server_is_retried_automatically(page: Page) -> None:
    busy = {"error": {"type": "Overloaded", "message": "too many questions at once", "hint": ""}}
    page.route("**/api/search/stream*", lambda route: route.fulfill(status=503, json=busy), times=1)
    page.goto("/?q=zebra")
    expect(page.locator("#results li").first).to_be_visible()


def only_keyword_results(served: Served, limit: int) -> str:
    """Return a script that replaces the stream of a search by its first step: the whole answer never comes."""
    reported = served.get(f"/api/search/stream?q=zebra&limit={limit}").body.decode()
    first = next(each for each in reported.split("\n\n") if "event: results" in each)
    assert '"step": "keyword"' in first or '"step":"keyword"' in first
    return """{
        const real = window.fetch;
        window.fetch = (address, options) => String(address).startsWith("/api/search/stream")
          ? Promise.resolve(new Response(new ReadableStream({ start(sink) { sink.enqueue(new TextEncoder().encode(FIRST)); } })))
          : real(address, options);
    }""".replace("FIRST", repr(first + "\n\n"))


def test_keyword_results_do_not_rearrange_a_list_that_is_continued(
    page: Page, served: Served
) -> None:
    page.goto("/?q=zebra&nearest=1")
    links = page.locator("#results a.row")
    expect(links).to_have_count(20)
    expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
    shown = links.all_inner_texts()
    page.evaluate(only_keyword_results(served, 50))
    page.get_by_role("button", name="More results").click()
    expect(page.locator("#message")).to_have_text("Searching …")
    assert links.all_inner_texts() == shown
    expect(links.last).to_be_focused()


def test_keyword_results_are_shown_while_the_rest_is_slow(page: Page, served: Served) -> None:
    page.add_init_script(only_keyword_results(served, 20))
    page.goto("/?q=zebra")
    expect(page.locator("#results li").first).to_be_visible()
    expect(page.locator("#results-panel")).to_have_attribute("aria-busy", "true")
    expect(page.locator("#message")).to_contain_text("Keyword results")


def test_the_token_is_needed_once_to_open_the_page(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# A\n\nThe heron.\n"})
    with (
        serving(folder, address={"token": "sesame"}) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        page.goto("/?token=sesame&q=heron")
        expect(page.locator("#results .path")).to_have_text(["a.md"])
        assert "sesame" not in page.url
        page.context.clear_cookies()
        page.locator("#q").fill("heron again")
        expect(page.locator("#state")).to_contain_text("/?token=")


def test_typing_shows_no_missing_results_between_two_keys(page: Page) -> None:
    page.goto("/?q=zebra")
    expect(page.locator("#results li").first).to_be_visible()
    page.evaluate(SEEN_HEADINGS)
    field = page.get_by_role("searchbox")
    for letters in (' "not', ' here"', " after:20"):
        # Longer than the debounce delay, shorter than the pause.
        field.press_sequentially(letters, delay=250)
    assert page.evaluate("window.seen") == 0
    expect(page.locator("#state h2")).to_be_visible()


def test_typing_lists_no_missing_documents_between_two_keys(page: Page) -> None:
    page.goto("/?q=zebra&documents=1")
    expect(page.locator("#results .listed li")).to_have_count(25)
    page.evaluate(SEEN_HEADINGS)
    page.get_by_role("searchbox").press_sequentially(' "not here"', delay=250)
    assert page.evaluate("window.seen") == 0
    expect(page.locator("#state h2")).to_have_text("No documents")
    page.get_by_role("button", name="Show the closest passages").click()
    expect(page.get_by_role("button", name="Documents")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#results .snippet").first).to_be_visible()
