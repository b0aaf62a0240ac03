"""Searching on the page: typing, filters, keyboard, history."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.making import write
from tests.surfaces.http.serving import serving
from tests.surfaces.web.browsing import WORDS, has_query, typed, visiting

QUOTED = '"exactly ninety minutes"'
"""In quotes, for the fake model knows no meaning."""
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
ODD = ('"', "-", "tag:", "a*b?[c", "'; --", "<b>", "😀", "\\", "%00", "((((", "日本語", "x" * 4000)


def test_results_appear_while_typing_with_their_location(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator("#home")).to_contain_text("29 documents")
    typed(page, QUOTED)
    first = page.locator("#results li").first
    expect(first.locator(".path")).to_have_text("guide/tokens.md")
    expect(first.locator(".title")).to_have_text("Tokens › Expiry")
    expect(first.locator(".line")).to_have_text(re.compile(r":\d+"))
    assert {"exactly", "ninety", "minutes"} <= set(first.locator("mark").all_inner_texts())
    assert first.locator(".title mark").count() == 0
    expect(page.locator("#message")).to_have_text(re.compile(r"^\d+ results?$"))
    expect(page).to_have_title("Tokens")  # of the preview


def test_the_start_has_recent_documents_folders_tags_and_queries(page: Page) -> None:
    page.goto("/")
    home = page.locator("#home")
    expect(home.locator("section", has_text="Recently changed").locator("li")).to_have_count(12)
    expect(home.get_by_role("link", name="guide 3")).to_be_visible()
    typed(page, "zebra herd")
    page.wait_for_timeout(1200)  # a query at rest is kept
    page.keyboard.press("Escape")
    expect(home.get_by_role("link", name="zebra herd")).to_be_visible()
    home.get_by_role("button", name="Clear").click()
    expect(home.get_by_role("link", name="zebra herd")).to_have_count(0)
    home.get_by_role("link", name="#security 2").click()
    expect(page.locator("#results .path")).to_have_text(["guide/auth.md", "guide/tokens.md"])
    expect(page.get_by_role("button", name="Remove the filter tag security")).to_be_visible()
    page.go_back()
    home.get_by_role("link", name="guide 3").click()
    expect(page.locator("#message")).to_have_text("3 documents")
    page.go_back()
    home.locator("section", has_text="Recently changed").get_by_role("link").first.click()
    expect(page.locator("#text h1")).to_be_visible()


@pytest.mark.parametrize("text", ["cach", "guide/cac", "kept for"])
def test_documents_come_first_by_title_alias_and_path_while_typing(page: Page, text: str) -> None:
    page.goto("/")
    typed(page, text)
    expect(page.locator("#results .named h2")).to_have_text("Documents")
    expect(page.locator("#results .named .title")).to_have_text("Caching")
    expect(page.locator("#results .named .path")).to_have_text("guide/caching.md")
    page.keyboard.press("ArrowDown")
    expect(page).to_have_title("Caching")


def test_what_is_typed_before_the_script_runs_is_searched(page: Page) -> None:
    held: list[Route] = []
    page.route("**/page/main.js", lambda route: held.append(route))  # a built-in is refused
    page.goto("/", wait_until="commit")
    page.locator("#q").press_sequentially("zebra")
    with page.expect_response(lambda response: has_query("zebra", response.url)):
        held[0].continue_()
    expect(page.locator("#q")).to_have_value("zebra")
    expect(page.locator("#results a.row").first).to_be_visible()


def test_results_are_sections_by_their_verdict_and_weak_ones_are_folded(page: Page) -> None:
    def judged(route: Route) -> None:
        events = route.fetch().text().split("event: results")
        for at, each in enumerate(events):
            for verdict in ("answers", "answers", "mentions", *["weak"] * 20):
                each = re.sub(r'"verdict": ?null', f'"verdict": "{verdict}"', each, count=1)
            events[at] = each
        text = "event: results".join(events)
        route.fulfill(body=text, content_type="text/event-stream")

    page.route("**/api/search/stream*", judged)
    page.goto("/?q=zebra&nearest=1")
    expect(page.locator("#results h2")).to_have_text(["Answers", "Also mentions", "Weak matches"])
    rows = page.locator("#results a.row")
    visible = [each for each in rows.all() if each.is_visible()]
    assert len(visible) == 3
    page.locator("#results .weak summary").first.click()
    expect(rows.last).to_be_visible()
    assert "%" not in page.locator("#results").inner_text()


def test_passages_of_one_document_are_grouped_and_the_rest_is_unfolded(
    browser: Browser, tmp_path: Path
) -> None:
    parts = "".join(
        f"## Part {number}\n\nThe heron number {number} waits at the water. {' '.join(WORDS[number * 25 : number * 25 + 25] * 5)}\n\n"
        for number in range(6)
    )
    folder = write(
        tmp_path / "docs", {"long.md": f"# Long\n\n{parts}", "b.md": "# B\n\nA heron.\n"}
    )
    with serving(folder) as each, visiting(browser, f"http://{each.name}") as page:
        page.goto("/?q=heron&nearest=1")
        rows = page.locator("#results a.row[data-open='long.md']")
        expect(rows).to_have_count(2)
        page.get_by_role("button", name="4 more here").click()
        expect(rows).to_have_count(6)
        assert len({row.get_attribute("data-lines") for row in rows.all()}) == 6


def test_a_row_is_about_a_hundred_pixels_and_snippets_run_on(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/?q=zebra+token&nearest=1")
    rows = page.locator("#results a.row")
    expect(rows.nth(7)).to_be_visible()
    heights = [box["height"] for row in rows.all()[:8] if (box := row.bounding_box())]
    assert max(heights) <= 104
    in_view = [
        row for row in rows.all() if (box := row.bounding_box()) and box["y"] + box["height"] <= 800
    ]
    assert len(in_view) >= 6
    for text in page.locator("#results .snippet").all_inner_texts():
        assert "\n" not in text.strip()
        assert not re.search(r"\.{2,}…?$|\.…$", text)


def test_details_of_a_result_are_in_its_menu(page: Page) -> None:
    page.goto("/?q=access+token")
    row = page.locator("#results li").first
    row.hover()
    row.locator(".menu summary").click()
    expect(row.locator(".score")).to_contain_text("Ranked, not calibrated · prose")
    row.get_by_role("button", name="Why").click()
    expect(row.locator("tbody tr").first).to_be_visible()
    assert any(
        "BM25 of the query terms" in each for each in row.locator("tbody tr").all_inner_texts()
    )
    page.keyboard.press("Escape")
    expect(row.locator(".popover")).to_be_hidden()


def test_17_keys_in_3_seconds_make_at_most_6_searches(page: Page) -> None:
    searches: list[str] = []
    page.on(
        "request",
        lambda request: searches.append(request.url) if "/api/search" in request.url else None,
    )
    page.clock.install(time=0)
    page.goto("/")
    expect(page.locator("#home section").first).to_be_visible()
    page.clock.pause_at(3600)  # on a busy machine the keys would come later
    for key in "zebra access toke":
        page.keyboard.type(key)
        page.clock.run_for(200)
    page.clock.run_for(600)
    assert 1 <= len(searches) <= 6
    assert has_query("zebra access toke", searches[-1])


def test_a_query_at_rest_enters_the_history(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#home section").first).to_be_visible()
    typed(page, "zebra")
    page.wait_for_timeout(1200)
    page.keyboard.type(" token")
    page.wait_for_timeout(1200)
    page.go_back()
    expect(page.locator("#q")).to_have_value("zebra")
    expect(page.locator("#announce")).to_have_text(re.compile("result"))


def test_the_page_can_be_used_with_the_keyboard_alone(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    links = page.locator("#results a.row")
    expect(links).to_have_count(20)
    page.locator("#theme").focus()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.locator("#theme").focus()
    page.keyboard.press("Control+k")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    expect(links.nth(1)).to_have_attribute("aria-current", "true")  # previewed
    title = links.nth(1).locator(".title").inner_text()
    expect(page).to_have_title(title)
    page.keyboard.press("Enter")
    expect(page.locator("#text .in-passage").first).to_be_focused()
    page.keyboard.press("Shift+ArrowDown")
    expect(links.nth(2)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(links.nth(2)).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#q")).to_have_value("")
    expect(page.locator("#home")).to_be_visible()


def test_filters_are_chips_and_kept_in_the_url(page: Page) -> None:
    page.goto("/?q=token")
    expect(page.locator("#results li").first).to_be_visible()
    page.locator("#filters summary").click()
    page.get_by_role("textbox", name="Tag").fill("#api, security")
    page.get_by_label("Path").fill("guide/**")
    page.get_by_label("From").fill("2020-01-31")
    expect(page.locator(".chip")).to_have_text(
        ["#api ×", "#security ×", "guide/** ×", "from 2020-01-31 ×"]
    )
    expected = {
        "q": ["token"],
        "tag": ["api", "security"],
        "path": ["guide/**"],
        "after": ["2020-01-31"],
    }
    page.wait_for_url(lambda url: expected.items() <= parse_qs(urlsplit(url).query).items())
    expect(page.locator("#results .path").first).to_have_text("guide/tokens.md")
    page.reload()
    expect(page.locator(".chip")).to_have_count(4)
    expect(page.locator("#results .path").first).to_have_text("guide/tokens.md")
    page.get_by_role("button", name="Remove the filter after 2020-01-31").click()
    expect(page.locator(".chip")).to_have_count(3)
    page.locator("#filters summary").click()
    page.get_by_role("textbox", name="Tag").fill("nothing-has-this")
    expect(page.locator("#state")).to_contain_text("No results")
    page.get_by_role("button", name="Search without filters").click()
    expect(page.locator("#results li").first).to_be_visible()
    expect(page.locator(".chip")).to_have_count(0)


def test_results_can_be_filtered_by_kind(page: Page) -> None:
    page.goto("/?q=refresh_token+renew&kind=code")
    expect(page.locator("#results li")).to_have_count(1)
    expect(page.locator("#results .snippet.code mark").first).to_have_text("refresh_token")
    expect(page.locator("#message")).to_have_text(re.compile(r"1 result of \d+"))
    page.locator("#filters summary").click()
    page.get_by_label("Kind of passage").select_option("table")
    expect(page.locator("#state")).to_contain_text("is a table")


def test_the_back_button_restores_the_previous_state(page: Page) -> None:
    page.goto("/?q=zebra")
    rows = page.locator("#results a.row")
    rows.nth(3).click()
    page.wait_for_url(re.compile("open="))
    opened = page.url
    rows.nth(5).click()
    page.wait_for_url(lambda url: url != opened)
    page.go_back()
    expect(page).to_have_url(opened)
    expect(rows.nth(3)).to_have_attribute("aria-current", "true")


def test_more_results_can_be_loaded(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    expect(page.locator("#results li")).to_have_count(20)
    page.get_by_role("button", name="More results").click()
    expect(page.locator("#results li").nth(22)).to_be_attached()
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query)["limit"] == ["50"])


def test_a_reference_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/?q=zebra+number+7")
    row = page.locator("#results li").first
    row.hover()
    row.locator(".menu summary").click()
    row.get_by_role("button", name="Copy reference").click()
    expect(page.locator("#toast")).to_have_text("Copied reference")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"many/\d+\.md:\d+-\d+", copied)


def test_any_typed_text_is_a_valid_query(page: Page) -> None:
    page.goto("/")
    for text in ODD:
        page.locator("#q").fill(text)
        page.wait_for_url(partial(has_query, text))
        expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
        expect(page.locator("#state .state, #results li").first).to_be_visible()
        expect(page.locator("#state")).not_to_contain_text("Search your documents")
        assert "failed" not in page.locator("#state").inner_text()


def test_the_focus_stays_in_the_list_when_its_result_disappears(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    links = page.locator("#results a.row")
    expect(links).to_have_count(20)
    links.nth(0).focus()
    page.evaluate(
        """(asked) => {
            const question = document.querySelector("#q");
            question.value = asked;
            question.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        QUOTED,
    )
    expect(page.locator("#results .path").first).to_have_text("guide/tokens.md")
    expect(links.nth(0)).to_be_focused()


def test_links_and_embeds_are_shown_by_name_in_excerpts(browser: Browser, tmp_path: Path) -> None:
    text = "Badgers: ![[Setts]], ![[dig.png|300]], ![a plan](plan.png), [[Otters|their kin]] and [[Stoats]]!\n"
    folder = write(tmp_path / "docs", {"a.md": text})
    with serving(folder) as each, visiting(browser, f"http://{each.name}") as page:
        page.goto("/?q=badgers")
        message = "Badgers: Setts, dig.png, a plan, their kin and Stoats!"
        expect(page.locator("#results .snippet")).to_have_text(message)


def test_the_switch_lists_all_matching_documents_with_their_number(page: Page) -> None:
    page.goto("/?q=zebra")
    expect(page.locator("#results .snippet").first).to_be_visible()
    page.get_by_role("button", name="Documents").click()
    expect(page.locator("#results .listed li")).to_have_count(25)
    expect(page.locator("#message")).to_have_text("25 documents, 25 passages")
    page.wait_for_url(re.compile("documents=1"))
    page.get_by_label("Order").select_option("path")
    expect(page.locator("#results .path").first).to_have_text("many/0.md")
    page.reload()
    expect(page.get_by_role("button", name="Documents")).to_have_attribute("aria-pressed", "true")
    page.locator("#results a.row").nth(2).click()
    expect(page).to_have_title(re.compile("Zebra"))


def test_without_words_the_switch_lists_what_matches_the_filters(page: Page) -> None:
    page.goto("/?documents=1&tag=security")
    expect(page.locator("#results .path")).to_have_text(["guide/auth.md", "guide/tokens.md"])
    page.goto("/?documents=1&tag=nowhere")
    expect(page.locator("#state h2")).to_have_text("No documents")
    page.get_by_role("button", name="List without filters").click()
    expect(page.locator("#message")).to_contain_text("29 documents")


def test_similar_and_linked_documents_are_in_the_menu(browser: Browser, tmp_path: Path) -> None:
    copy = "# Heron\n\nThe heron waits at the water and eats fish, frogs and small birds all day. See [[Reeds]].\n"
    folder = write(
        tmp_path / "docs",
        {
            **{f"{name}.md": copy for name in "abc"},
            "reeds.md": "# Reeds\n\nGreen stalks grow in ponds.\n",
        },
    )
    with (
        serving(folder, search={"linked": {"below": 1.0}}) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        page.goto("/?q=heron+waits+at+the+water")
        row = page.locator("#results li").first
        row.hover()
        row.locator(".menu summary").click()
        expect(row.locator(".places").first.get_by_role("listitem")).to_have_count(2)
        expect(row.locator(".places").last).to_contain_text("Reeds")
        row.locator(".places a").last.click()
        expect(page).to_have_title("Reeds")
