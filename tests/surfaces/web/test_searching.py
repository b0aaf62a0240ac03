"""Searching on the page: typing, filters, keyboard, history."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, Page, Request, Route, expect

from tests.making import write
from tests.surfaces.http.serving import serving
from tests.surfaces.web.browsing import asks, has_query, typed, visiting

QUOTED = '"exactly ninety minutes"'
"""In quotes, for the fake model knows no meaning."""
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
ODD = ('"', "-", "tag:", "a*b?[c", "'; --", "<b>", "😀", "\\", "%00", "((((", "日本語", "x" * 4000)


def test_results_appear_while_typing_with_their_location(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#q")).to_be_focused()
    expect(page.locator("#state")).to_contain_text("29 documents")
    typed(page, QUOTED)
    first = page.locator("#results > li").first
    expect(first.locator(".path")).to_have_text("guide/tokens.md")
    expect(first.locator("h3")).to_have_text("Tokens › Expiry")
    expect(first.locator(".lines")).to_have_text(re.compile(r"lines \d+–\d+"))
    assert {"exactly", "ninety", "minutes"} <= set(first.locator("mark").all_inner_texts())
    expect(page.locator("#message")).to_have_text(re.compile(r"^\d+ results?$"))
    asks(page, q=[QUOTED])
    expect(page).to_have_title(f"{QUOTED} – Marklight")


def test_an_uncalibrated_score_is_not_shown_as_a_probability(page: Page) -> None:
    page.goto("/?q=zebra")
    expect(page.locator(".score").first).to_have_text("ranked")  # the model is a fake


def test_a_calibrated_score_is_explained_in_words(page: Page) -> None:
    def calibrated(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "calibrated": True})

    page.route("**/api/status", calibrated)
    page.goto("/?q=zebra")
    expect(page.locator(".score").first).to_have_text(
        re.compile(
            r"^\d+ %, (very likely an answer|likely an answer|possibly an answer|less likely|unlikely)$"
        )
    )
    percent = int(page.locator(".score").first.inner_text().split()[0])
    expect(page.locator(".score").first).to_have_attribute(
        "title", f"Of passages with this score, about {percent} of 100 answer the query"
    )


def test_fast_typing_never_runs_two_searches_at_once(page: Page) -> None:
    begun: list[Request] = []
    ended: list[Request] = []
    most = 0

    def begin(request: Request) -> None:
        nonlocal most
        if "/api/search" in request.url:
            begun.append(request)
            # A cancelled request is reported a moment after the next one has started.
            most = max(most, len(begun) - len(ended))

    page.clock.install(time=NOON)
    page.goto("/")
    expect(page.locator("#state")).to_contain_text("29 documents")
    page.clock.pause_at(NOON + timedelta(hours=1))
    page.on("request", begin)
    for event in ("requestfinished", "requestfailed"):
        page.on(
            event, lambda request: ended.append(request) if "/api/search" in request.url else None
        )
    words = "a zebra that is told of in a question of some length zebra".split()
    for number, word in enumerate(words):
        # As fast as one types, whatever the machine: time passes when we say so.
        for sign in f"{word} ":
            page.keyboard.press(sign if sign != " " else "Space")
            page.clock.run_for(50)
        if number % 3 == 2:
            page.clock.run_for(200)  # a pause for thought
    page.clock.resume()
    expect(page.locator("#message")).to_contain_text("result")
    expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
    assert most <= 2
    # One for each pause, and perhaps one for the last word.
    assert len(begun) - len(words) // 3 in (0, 1)


def test_the_page_can_be_used_with_the_keyboard_alone(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    links = page.locator("#results h3 a")
    expect(links).to_have_count(10)
    page.locator("#theme").focus()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    assert page.locator("#q").input_value() == "zebra"
    page.keyboard.press("ArrowDown")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    title = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert title == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#pane")).to_be_visible()
    expect(page.locator("#pane-title")).to_be_focused()
    expect(links.nth(1)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(page.locator("#pane")).to_be_hidden()
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#q")).to_have_value("")
    expect(links).to_have_count(0)
    asks(page)


def test_filters_are_kept_in_the_url(page: Page) -> None:
    page.goto("/?q=token")
    expect(page.locator("#results > li").first).to_be_visible()
    page.locator("#filters summary").click()
    page.get_by_label("Tag").fill("#api, security")
    page.get_by_label("Path").fill("guide/**")
    page.get_by_label("From").fill("2020-01-31")
    expect(page.locator("#filter-count")).to_have_text(" (3)")
    expected = {
        "q": ["token"],
        "tag": ["api", "security"],
        "path": ["guide/**"],
        "after": ["2020-01-31"],
    }
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)
    expect(page.locator("#results .path").first).to_have_text("guide/tokens.md")
    page.reload()
    expect(page.get_by_label("Tag")).to_have_value("api, security")
    expect(page.get_by_label("From")).to_have_value("2020-01-31")
    expect(page.locator("#results .path").first).to_have_text("guide/tokens.md")
    page.get_by_label("Tag").fill("nothing-has-this")
    expect(page.locator("#state")).to_contain_text("No results")
    page.get_by_role("button", name="Search without filters").click()
    expect(page.locator("#results > li").first).to_be_visible()
    asks(page, q=["token"])


def test_results_can_be_filtered_by_kind(page: Page) -> None:
    page.goto("/?q=refresh_token+renew&kind=code")
    expect(page.locator("#results > li")).to_have_count(1)
    expect(page.locator("#results pre mark").first).to_have_text("refresh_token")
    expect(page.locator("#message")).to_have_text(re.compile(r"1 result of \d+"))
    page.get_by_label("Kind").select_option("table")
    expect(page.locator("#state")).to_contain_text("is a table")


def test_the_back_button_restores_the_previous_state(page: Page) -> None:
    page.goto("/?q=zebra")
    page.locator("#results h3 a").first.click()
    expect(page.locator("#pane")).to_be_visible()
    page.wait_for_url(re.compile("open="))
    opened = page.url
    page.go_back()
    expect(page.locator("#pane")).to_be_hidden()
    asks(page, q=["zebra"])
    page.go_forward()
    expect(page.locator("#pane")).to_be_visible()
    expect(page).to_have_url(opened)


def test_more_results_can_be_loaded(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    expect(page.locator("#results > li")).to_have_count(10)
    page.get_by_role("button", name="More results").click()
    expect(page.locator("#results > li")).to_have_count(30)
    asks(page, q=["zebra"], nearest=["1"], limit=["30"])


def test_score_and_stages_can_be_expanded(page: Page) -> None:
    page.goto("/?q=access+token")
    page.locator("#results summary").first.click()
    rows = page.locator("#results > li").first.locator("tbody tr")
    expect(rows.first).to_be_visible()
    assert any("found by words" in each for each in rows.all_inner_texts())
    page.get_by_text("Search details").click()
    stages = page.locator("#stages tbody th").all_inner_texts()
    assert {"semantic", "keyword", "fuse"} <= set(stages)


def test_a_reference_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/?q=zebra+number+7")
    page.locator("#results > li").first.get_by_role("button", name="Copy reference").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"many/\d+\.md:\d+-\d+", copied)


def test_any_typed_text_is_a_valid_query(page: Page) -> None:
    page.goto("/")
    for text in ODD:
        page.locator("#q").fill(text)
        page.wait_for_url(partial(has_query, text))
        expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
        expect(page.locator("#state .state, #results > li").first).to_be_visible()
        expect(page.locator("#state")).not_to_contain_text("Search your documents")
        assert "failed" not in page.locator("#state").inner_text()


def test_the_focus_stays_in_the_list_when_its_result_disappears(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    links = page.locator("#results h3 a")
    expect(links).to_have_count(10)
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
        expect(page.locator("#results .passage")).to_have_text(message)


def test_the_switch_lists_all_matching_documents_with_their_number(page: Page) -> None:
    page.goto("/?q=zebra")
    expect(page.locator("#results .passage").first).to_be_visible()
    page.get_by_label("List documents").check()
    expect(page.locator("#results > li.listed")).to_have_count(25)
    expect(page.locator("#message")).to_have_text("25 documents, 25 passages")
    # The model is a fake, so scores are no probabilities.
    expect(page.locator("#results")).not_to_contain_text("%")
    page.wait_for_url(re.compile("documents=1"))
    page.reload()
    expect(page.get_by_label("List documents")).to_be_checked()
    page.locator("#results h3 a").first.click()
    expect(page.locator("#pane-title")).to_contain_text("Zebra")


def test_without_words_the_switch_lists_what_matches_the_filters(page: Page) -> None:
    page.goto("/?documents=1&tag=security")
    expect(page.locator("#results .path")).to_have_text(["guide/auth.md", "guide/tokens.md"])
    page.goto("/?documents=1&tag=nowhere")
    expect(page.locator("#state h2")).to_have_text("No documents")
    page.get_by_role("button", name="List without filters").click()
    expect(page.locator("#message")).to_contain_text("29 documents")


def test_duplicates_are_unfolded_below_their_result(browser: Browser, tmp_path: Path) -> None:
    copy = "# Heron\n\nThe heron waits at the water and eats fish, frogs and small birds all day.\n"
    folder = write(tmp_path / "docs", {f"{name}.md": copy for name in "abc"})
    with serving(folder) as each, visiting(browser, f"http://{each.name}") as page:
        page.goto("/?q=heron+waits+at+the+water")
        page.get_by_text("+2 similar").click()
        expect(page.locator(".similar li")).to_have_count(2)
        page.locator(".similar a").last.click()
        expect(page.locator("#pane-title")).to_have_text("Heron")
        page.keyboard.press("Escape")
        expect(page.locator(".similar a").last).to_be_focused()


def test_linked_documents_are_a_labelled_group_below_their_result(
    browser: Browser, tmp_path: Path
) -> None:
    texts = {
        "heron.md": "# Heron\n\nThe heron waits at the water. See [[Reeds]] and [[Frogs]].\n",
        "reeds.md": "# Reeds\n\nGreen stalks grow in shallow ponds.\n",
        "frogs.md": "# Frogs\n\nThey croak in May.\n",
    }
    folder = write(tmp_path / "docs", texts)
    with (
        serving(folder, search={"linked": {"below": 1.0}}) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        page.goto("/?q=heron+waits")
        expect(page.locator("#results h3")).to_have_text(["Heron"])
        group = page.get_by_role("list", name="Linked with this result")
        expect(group.get_by_role("listitem")).to_have_count(2)
        expect(group).to_contain_text("reeds.md")
        page.locator("#q").press("ArrowDown")
        expect(page.locator("#results h3 a")).to_be_focused()
        for _ in ("Copy", "Why", "first document"):
            page.keyboard.press("Tab")
        first = group.get_by_role("link").first
        expect(first).to_be_focused()
        title = first.inner_text()
        page.keyboard.press("Enter")
        expect(page.locator("#pane-title")).to_have_text(title)
        expect(first).to_have_attribute("aria-current", "true")
        page.keyboard.press("Escape")
        expect(first).to_be_focused()
        page.keyboard.press("ArrowUp")
        expect(page.locator("#results h3 a")).to_be_focused()
    # A search that is certain lists none.
    with (
        serving(folder, search={"linked": {"below": 0.0}}) as each,
        visiting(browser, f"http://{each.name}") as page,
    ):
        page.goto("/?q=heron+waits")
        expect(page.locator("#results h3").first).to_have_text("Heron")
        expect(page.locator(".linked")).to_have_count(0)
