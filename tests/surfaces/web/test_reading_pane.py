"""The reading pane: passage, outline, links and link graph of a document."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import visiting

EDGES = "each => { const { left, right, top, bottom } = each.getBoundingClientRect(); return [left, top, -right, -bottom] }"


def within(inner: list[float], outer: list[float]) -> bool:
    return all(one >= other - 0.5 for one, other in zip(inner, outer, strict=True))


def is_in_sight(page: Page, block: Locator) -> bool:
    """Below the pane's head and above its end."""
    head = page.locator("#pane > header").bounding_box()
    pane = page.locator("#pane").bounding_box()
    box = block.bounding_box()
    assert head
    assert pane
    assert box
    return head["y"] + head["height"] <= box["y"] < pane["y"] + pane["height"]


def test_a_document_opens_at_its_passage_which_is_highlighted(page: Page) -> None:
    page.goto("/?q=%22exactly+ninety+minutes%22")
    page.locator("#results h3 a").first.click()
    expect(page.locator("#pane-title")).to_have_text("Tokens")
    passage = page.locator("#view-text .in-passage")
    expect(passage.first).to_contain_text("ninety minutes")
    assert page.locator("#pane").evaluate("pane => pane.scrollTop") > 500
    assert is_in_sight(page, passage.first)
    light = page.locator("#view-text .highlight").bounding_box()
    block = passage.first.bounding_box()
    assert light
    assert block
    assert light["y"] <= block["y"] <= light["y"] + light["height"]
    # The list beside it stays where it was.
    assert page.evaluate("scrollY") == 0


def test_a_url_opens_a_document_at_a_passage(page: Page) -> None:
    page.goto("/?open=guide/tokens.md&lines=127-128")
    expect(page.locator("#view-text .in-passage")).to_have_text(re.compile("ninety minutes"))
    assert is_in_sight(page, page.locator("#view-text .in-passage"))


def test_the_outline_links_to_headings(page: Page) -> None:
    page.goto("/?open=guide/tokens.md")
    page.get_by_role("tab", name="Outline").click()
    expect(page.locator(".outline a")).to_have_text(["Tokens", "Expiry", "Code"])
    page.locator(".outline a", has_text="Code").click()
    expect(page.get_by_role("tab", name="Text")).to_have_attribute("aria-selected", "true")
    assert is_in_sight(page, page.locator("#part-code"))


def test_internal_links_open_in_the_pane_and_external_ones_in_a_new_tab(page: Page) -> None:
    page.goto("/?open=guide/auth.md")
    text = page.locator("#view-text")
    outside = text.get_by_role("link", name="the site")
    expect(outside).to_have_attribute("target", "_blank")
    expect(outside).to_have_attribute("rel", "noopener noreferrer")
    expect(text.get_by_text("gone", exact=True)).to_have_attribute("title", "Broken link")
    expect(text.get_by_role("img")).to_have_attribute("aria-label", "Image: the flow")
    text.get_by_role("link", name="expiry").click()
    expect(page.locator("#pane-title")).to_have_text("Tokens")
    expect(page.locator("#part-expiry")).to_be_in_viewport()
    page.wait_for_url(re.compile(r"/\?open=guide/tokens\.md&at=expiry$"))
    text.get_by_role("link", name="auth").click()
    expect(page.locator("#pane-title")).to_have_text("Authentication")
    page.go_back()
    expect(page.locator("#pane-title")).to_have_text("Tokens")


def test_links_backlinks_and_related_documents_are_listed(page: Page) -> None:
    page.goto("/?open=guide/auth.md&view=links")

    def part(title: str) -> Locator:
        return page.locator("#view-links section").filter(
            has=page.get_by_role("heading", name=title)
        )

    expect(part("Linked from").get_by_role("link")).to_have_text(["guide/tokens.md"])
    expect(part("Links to").get_by_role("link")).to_have_text(
        ["guide/tokens.md", "guide/caching.md"]
    )
    expect(part("Broken links")).to_contain_text("gone")
    expect(part("Related")).to_contain_text("1 shared tag: security")


def test_the_graph_shows_linked_documents_as_links(page: Page) -> None:
    page.goto("/?open=guide/auth.md&view=graph")
    dots = page.locator("#view-graph svg a")
    expect(dots).to_have_count(3)
    expect(dots.first).to_have_attribute("aria-label", "Authentication")
    drawn, frame = (page.locator(each).evaluate(EDGES) for each in ("#view-graph svg", "#pane"))
    assert within(drawn, frame)
    for dot in dots.all():
        assert within(dot.locator("circle").last.evaluate(EDGES), drawn)
    tokens = page.get_by_role("link", name="Tokens", exact=True)
    tokens.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#pane-title")).to_have_text("Tokens")
    expect(page.locator("#view-graph svg a").first).to_have_attribute("aria-label", "Tokens")


def test_arrow_keys_move_between_the_tabs(page: Page) -> None:
    page.goto("/?open=guide/auth.md")
    page.get_by_role("tab", name="Text").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Outline")).to_be_focused()
    expect(page.locator("#view-outline")).to_be_visible()
    page.keyboard.press("End")
    expect(page.get_by_role("tab", name="Graph")).to_have_attribute("aria-selected", "true")
    page.wait_for_url(re.compile("view=graph"))


def test_plain_text_is_shown_line_by_line(page: Page) -> None:
    page.goto("/?open=notes.txt&lines=1-2")
    block = page.locator("#view-text .in-passage")
    expect(block).to_have_text(
        "The espresso machine stands in the kitchen.\n  It is descaled on Fridays.",
        use_inner_text=True,
    )


def test_a_reference_to_the_open_document_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/?open=guide/tokens.md&lines=3-9")
    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "guide/tokens.md:3-9"


def test_a_missing_document_is_reported(page: Page) -> None:
    page.goto("/?open=guide/token.md")
    expect(page.locator("#view-text")).to_contain_text("Document not found")
    expect(page.locator("#view-text")).to_contain_text("guide/tokens.md")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("several")
    long = "".join(f"# Part {number}\n\nSaid in part {number}.\n\n" for number in range(2_500))
    files = {
        "one/a.md": "# A\n\nThe walrus. See [[b]].\n",
        "two/b.md": "# B\n\nThe narwhal.\n",
        "two/a.md": "# Other\n\nThe dugong.\n",
        "two/long.md": long,
    }
    with serving(write(folder, files), collections={"one": "one", "two": "two"}) as each:
        yield each


def test_a_long_document_is_shown_in_parts(browser: Browser, several: Served) -> None:
    with visiting(browser, f"http://{several.name}") as page:
        page.goto("/?open=two/long.md&lines=8003-8003")
        expect(page.locator(".in-passage")).to_have_text("Said in part 2000.")
        expect(page.locator("#view-text > .state")).to_contain_text("of 10,001.")
        assert page.locator("#view-text h1").count() < 1_100
        page.get_by_role("link", name="Previous part").click()
        expect(page.locator("#part-part-1600")).to_be_attached()


def test_the_outline_of_a_long_document_leads_into_its_other_parts(
    browser: Browser, several: Served
) -> None:
    with visiting(browser, f"http://{several.name}") as page:
        page.goto("/?open=two/long.md")
        page.get_by_role("tab", name="Outline").click()
        page.get_by_role("link", name="Part 2222", exact=True).click()
        expect(page.locator("#part-part-2222")).to_be_in_viewport()
        page.goto("/?open=two/long.md&at=part-1500")
        expect(page.locator("#part-part-1500")).to_be_in_viewport()


def test_reading_on_continues_where_a_part_ends(browser: Browser, several: Served) -> None:
    with visiting(browser, f"http://{several.name}") as page:
        page.goto("/?open=two/long.md")
        part = page.locator("#view-text > .state")
        expect(part).to_contain_text("of 10,001.")
        last = re.search(r"–([\d,]+) of", part.inner_text())
        assert last
        page.get_by_role("link", name="Next part").click()
        number = -(-int(last[1].replace(",", "")) // 4)  # four lines each
        expect(page.locator(f"#part-part-{number}")).to_be_in_viewport()


def test_an_open_document_follows_its_file(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# A\n\n" + "Before.\n\n" * 200})
    with serving(folder) as served, visiting(browser, f"http://{served.name}") as page:
        page.goto("/?open=a.md&lines=301-301")
        expect(page.locator("#view-text")).to_contain_text("Before.")
        page.wait_for_function("document.getElementById('pane').scrollTop > 100")
        top = page.evaluate("document.getElementById('pane').scrollTop")
        (folder / "a.md").write_text("# A\n\n" + "After.\n\n" * 200)
        expect(page.locator("#view-text")).to_contain_text("After.")
        assert abs(page.evaluate("document.getElementById('pane').scrollTop") - top) < 5


def test_a_printed_document_is_complete(page: Page) -> None:
    page.goto("/?open=guide/tokens.md")
    expect(page.locator("#view-text h1")).to_be_visible()
    page.emulate_media(media="print")
    pane = page.locator("#pane")
    assert pane.evaluate("pane => pane.scrollHeight <= pane.clientHeight + 1")
    expect(page.locator("#results-panel")).to_be_hidden()
    expect(page.get_by_role("tab", name="Outline")).to_be_hidden()


def test_words_in_wide_tables_are_not_broken(browser: Browser, tmp_path: Path) -> None:
    columns = 12
    row = "| " + " | ".join(["Authentication"] * columns) + " |\n"
    text = f"# T\n\n{row}|{'---|' * columns}\n{row}"
    with (
        serving(write(tmp_path / "docs", {"t.md": text})) as served,
        visiting(browser, f"http://{served.name}", viewport={"width": 400, "height": 800}) as page,
    ):
        page.goto("/?open=t.md")
        cell = page.locator("td").first
        expect(cell).to_be_visible()
        height = float(cell.evaluate("cell => cell.getBoundingClientRect().height"))
        assert height < 2 * 24  # one line
        assert page.evaluate("document.getElementById('pane').scrollWidth") <= 400


def test_with_several_collections_documents_have_unique_names(
    browser: Browser, several: Served
) -> None:
    with visiting(browser, f"http://{several.name}") as page:
        page.goto("/?q=dugong")
        expect(page.locator("#results .path").first).to_have_text("two/a.md")
        page.locator("#results h3 a").first.click()
        expect(page.locator("#view-text")).to_contain_text("dugong")
        page.goto("/?open=one/a.md")
        page.locator("#view-text").get_by_role("link", name="b").click()
        expect(page.locator("#pane-title")).to_have_text("B")
        page.locator("#filters summary").click()
        page.locator("#q").fill("walrus narwhal dugong")
        page.get_by_label("Collection").select_option("one")
        expect(page.locator("#results .path")).to_have_text(["one/a.md"])


def test_reading_a_document_writes_no_file(served: Served, page: Page) -> None:
    page.goto("/?open=notes.txt")
    expect(page.locator("#view-text")).to_contain_text("espresso")
    folder = Path(served.host.library.place.folder)
    assert sorted(each.name for each in folder.iterdir()) == ["guide", "many", "notes.txt"]


def test_list_pane_and_filters_use_the_same_date(browser: Browser, tmp_path: Path) -> None:
    pages = {
        "own.md": "---\ndate: 2024-03-05\n---\n# Own\n\nBadgers dig setts.\n",
        "file.md": "# File\n\nOtters build holts.\n",
    }
    folder = write(tmp_path / "docs", pages)
    os.utime(folder / "file.md", (1_600_000_000, 1_600_000_000))  # 13 September 2020
    # West of Greenwich a day that begins there at midnight is still the day before.
    with (
        serving(folder) as each,
        visiting(
            browser, f"http://{each.name}", timezone_id="America/Los_Angeles", locale="en-GB"
        ) as page,
    ):
        for query, name, day in (
            ("badgers after:2024-03-05 before:2024-03-05", "own.md", "5 Mar 2024"),
            ("otters after:2020-09-13 before:2020-09-13", "file.md", "13 Sept 2020"),
        ):
            page.goto(f"/?q={query}")
            expect(page.locator("#results .path")).to_have_text([name])
            expect(page.locator("#results time")).to_have_text([day])
            page.locator("#results h3 a").click()
            expect(page.locator("#view-text .facts time")).to_have_text(day)
