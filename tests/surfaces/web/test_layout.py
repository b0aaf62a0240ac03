"""Layout, themes and accessibility of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from marklight.surfaces.http.app import WEB_FOLDER
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import visiting

PHONE = {"width": 360, "height": 640}
VIEWS = (
    "/",
    "/?q=token",
    "/?q=refresh_token&kind=code&tag=api",
    "/?q=xylophone+quartets",
    "/?open=guide/tokens.md&lines=127-140",
    "/?open=guide/auth.md&view=outline",
    "/?open=guide/auth.md&view=links",
    "/?open=guide/auth.md&view=graph",
    "/?open=guide/caching.md",
)
NAMELESS = """
() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0'], [role]")]
  .filter(each => each.checkVisibility())
  .filter(each => {
    const by = id => document.getElementById(id)?.textContent ?? "";
    const said = each.getAttribute("aria-label")
      || (each.getAttribute("aria-labelledby") ?? "").split(" ").map(by).join(" ").trim()
      || [...(each.labels ?? [])].map(label => label.textContent).join(" ").trim()
      || (each.matches("input, select") ? "" : each.textContent.trim());
    return !said && !each.matches("pre, [role=status]");
  })
  .map(each => each.outerHTML.slice(0, 120))
"""
CONTRAST = """
() => {
  const shown = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = colour => { shown.clearRect(0, 0, 1, 1); shown.fillStyle = colour; shown.fillRect(0, 0, 1, 1); const [r, g, b, a] = shown.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3]));
  const ground = each => {
    const layers = [];
    for (let at = each; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = [];
  while (walk.nextNode()) {
    const each = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !each.checkVisibility({ visibilityProperty: true }) || each.closest(".visually-hidden, .skip, svg, noscript")) continue;
    const below = ground(each), ink = over(rgba(getComputedStyle(each).color), below);
    const [more, less] = [light(ink), light(below)].sort((one, other) => other - one);
    const ratio = (more + 0.05) / (less + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)} ${each.className} ${walk.currentNode.data.trim().slice(0, 40)}`);
  }
  return poor;
}
"""


def settled(page: Page, address: str) -> None:
    """With all that the address asks for."""
    page.goto(address)
    if "q=" in address or "open=" not in address:
        expect(page.locator("#state .state, #results > li").first).to_be_visible()
        expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
    if "open=" in address:
        part = page.locator("#pane [role=tabpanel]:not([hidden]) > :not([role=status])")
        expect(part.first).to_be_visible()


@pytest.fixture(scope="module")
def phone(browser: Browser, served: Served) -> Iterator[Page]:
    with visiting(browser, f"http://{served.name}", viewport=PHONE, has_touch=True) as page:
        yield page


@pytest.mark.parametrize("address", VIEWS)
def test_nothing_is_wider_than_a_small_screen(phone: Page, address: str) -> None:
    settled(phone, address)
    for each in ("document.documentElement", "document.getElementById('pane')"):
        assert phone.evaluate(f"{each}.scrollWidth <= {each}.clientWidth"), each


def test_on_a_small_screen_the_pane_covers_the_list_and_can_be_closed(phone: Page) -> None:
    settled(phone, "/?q=token")
    phone.locator("#results h3 a").first.click()
    pane = phone.locator("#pane").bounding_box()
    assert pane == {"x": 0, "y": 0, **PHONE}
    assert phone.evaluate("document.getElementById('results-panel').inert")
    phone.get_by_role("button", name="← Results").click()
    expect(phone.locator("#pane")).to_be_hidden()
    expect(phone.locator("#results h3 a").first).to_be_focused()


@pytest.mark.parametrize("address", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_and_every_control_has_a_name(
    browser: Browser, served: Served, schemes: dict[str, Page], scheme: str, address: str
) -> None:
    page = schemes[scheme]
    settled(page, address)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(NAMELESS) == []
    assert (
        page.evaluate(
            "[...document.querySelectorAll('[id]')].map(each => each.id).filter((id, at, all) => all.indexOf(id) !== at)"
        )
        == []
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dimmed_passages_have_contrast_too(browser: Browser, tmp_path: Path, scheme: str) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# Heron\n\nThe heron waits at the water.\n"})
    with (
        serving(folder, search={"confidence": {"threshold": 1.0}}) as each,
        visiting(browser, f"http://{each.name}", color_scheme=scheme) as page,
    ):
        settled(page, "/?q=heron+nests")
        dimmed = page.locator("#results.nearest > li").first
        expect(dimmed.locator("mark").first).to_be_visible()
        expect(dimmed).to_have_css("opacity", "1")
        assert page.evaluate(CONTRAST) == []


@pytest.fixture(scope="module")
def schemes(browser: Browser, served: Served) -> Iterator[dict[str, Page]]:
    base = f"http://{served.name}"
    with (
        visiting(browser, base, color_scheme="light") as light,
        visiting(browser, base, color_scheme="dark") as dark,
    ):
        yield {"light": light, "dark": dark}


def test_the_theme_follows_the_system_until_the_user_chooses_one(
    browser: Browser, served: Served
) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    with visiting(browser, f"http://{served.name}", color_scheme="dark") as page:
        page.goto("/")
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Use light colours").click()
        light = page.evaluate(ground)
        assert dark != light
        page.reload()
        assert page.evaluate(ground) == light
        page.get_by_role("button", name="Use dark colours").click()
        assert page.evaluate(ground) == dark


def test_changes_are_announced_to_screen_readers(page: Page) -> None:
    settled(page, "/?q=token")
    expect(page.get_by_role("status").filter(has_text="result")).to_have_count(1)
    expect(page.get_by_role("search")).to_have_count(1)
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("searchbox", name="Search your documents")).to_have_attribute(
        "aria-controls", "results"
    )
    page.locator("body").press("Tab")
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(each => each.tagName)")
    assert levels


def test_the_tab_key_leaves_every_part_of_the_page(page: Page) -> None:
    settled(page, "/?q=xylophone+quartets&open=guide/caching.md")
    seen: list[str] = []
    page.locator(".skip").focus()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement === document.body ? '' : document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
        if seen[-1] == "":
            break
    assert "" in seen, seen  # out of the page again
    assert {"q", "theme", "close", "copy", "tab-text", "view-text"} <= set(seen)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#results-panel")).to_be_focused()


def test_reduced_motion_is_respected(browser: Browser, served: Served) -> None:
    with visiting(browser, f"http://{served.name}", reduced_motion="reduce") as page:
        settled(page, "/?q=token&open=guide/tokens.md")
        moving = "[...document.querySelectorAll('*')].filter(each => getComputedStyle(each).transitionDuration !== '0s').length"
        assert page.evaluate(moving) == 0


@pytest.mark.parametrize("file", sorted(WEB_FOLDER.iterdir()), ids=lambda file: file.name)
def test_no_file_of_the_page_contains_what_the_policy_forbids(file: object) -> None:
    assert isinstance(file, Path)
    text = file.read_text("utf-8")
    assert "innerHTML" not in text
    assert not re.search(
        r"\beval\(|new Function|\son[a-z]+=\"|\sstyle=\"|<style|https?://(?!www\.w3\.org/2000/svg)",
        text,
    )
