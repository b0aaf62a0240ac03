"""Layout, themes and accessibility of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from marklight.surfaces.http.page import WEB_FOLDER
from tests.surfaces.http.serving import Served
from tests.surfaces.web.browsing import visiting
from tests.waiting import until

PHONE: ViewportSize = {"width": 360, "height": 640}
VIEWS = (
    "/",
    "/?q=token",
    "/?q=refresh_token&kind=code&tag=api",
    "/?q=xylophone+quartets",
    "/?q=zebra&documents=1",
    "/?open=guide/tokens.md&lines=127-140",
    "/?q=token&open=guide/auth.md",
    "/?graph=guide/auth.md",
    "/?open=guide/caching.md",
    "/?open=guide/nowhere.md",
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
    shown = page.locator("#state .state, #results li, #text > *, #home section, #graph .drawing")
    expect(shown.filter(visible=True).first).to_be_visible()
    expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")
    if "open=" in address:
        expect(page.locator("#text > *").first).to_be_visible()


@pytest.fixture(scope="module")
def phone(browser: Browser, served: Served) -> Iterator[Page]:
    with visiting(browser, f"http://{served.name}", viewport=PHONE, has_touch=True) as page:
        yield page


@pytest.mark.parametrize("width", [320, 360, 700, 1280, 1920])
@pytest.mark.parametrize("address", VIEWS)
def test_nothing_is_wider_than_the_screen(phone: Page, address: str, width: int) -> None:
    phone.set_viewport_size({"width": width, "height": 640})
    settled(phone, address)
    wider = phone.evaluate(
        "() => ['html', '#results-panel', '#text', '#rail', '#home'].map(name => document.querySelector(name))"
        ".filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1).map(each => each.id || 'page')"
    )
    phone.set_viewport_size(PHONE)
    assert wider == []


def test_the_columns_follow_the_width_of_the_window(page: Page) -> None:
    def width(name: str) -> float:
        box = page.locator(name).bounding_box()
        return box["width"] if box else 0

    page.set_viewport_size({"width": 1280, "height": 800})
    settled(page, "/?q=token&open=guide/tokens.md")
    expect(page.locator("#rail .outline")).to_be_visible()
    bar = page.locator(".bar").bounding_box()
    assert bar
    assert bar["height"] <= 49
    assert [width("#results-panel"), width("#rail")] == [360, 220]
    page.set_viewport_size({"width": 1500, "height": 800})
    line = page.locator("#text p[data-lines]").first.bounding_box()
    assert line
    assert 560 < line["width"] < 720  # about 68 characters
    page.set_viewport_size({"width": 900, "height": 800})
    expect(page.locator("#rail")).to_be_hidden()
    expect(page.locator("#results-panel")).to_be_visible()
    page.set_viewport_size({"width": 500, "height": 800})
    expect(page.locator("#results-panel")).to_be_hidden()
    expect(page.locator("#reader")).to_be_visible()


def test_on_a_small_screen_list_and_document_are_shown_one_at_a_time(phone: Page) -> None:
    settled(phone, "/?q=token")
    expect(phone.locator("#reader")).to_be_hidden()
    phone.locator("#results a.row").first.click()
    expect(phone.locator("#results-panel")).to_be_hidden()
    # While the document is loading, the page may still have the layout of the list.
    until(lambda: phone.locator("#reader").bounding_box() == {"x": 0, "y": 0, **PHONE})
    phone.get_by_role("button", name="← Back").click()
    expect(phone.locator("#reader")).to_be_hidden()
    expect(phone.locator("#results a.row").first).to_be_focused()


def test_the_first_view_takes_at_most_12_requests_and_45_kilobytes(
    browser: Browser, served: Served
) -> None:
    sizes: list[tuple[str, int]] = []
    with visiting(browser, f"http://{served.name}") as page:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        names: dict[str, str] = {}
        session.on(
            "Network.requestWillBeSent",
            lambda each: names.update({each["requestId"]: each["request"]["url"]}),
        )
        session.on(
            "Network.dataReceived",
            lambda each: sizes.append((names[each["requestId"]], each["encodedDataLength"])),
        )
        page.goto("/")
        expect(page.locator("#home section").first).to_be_visible()
        page.wait_for_timeout(500)
    assert len({url for url in names.values() if url.startswith("http")}) <= 12, names.values()
    assert sum(size for _, size in sizes) <= 45_000, sizes
    assert sum(size for _, size in sizes) > 10_000


def test_marks_and_the_current_result_are_visible_with_forced_colours(
    browser: Browser, served: Served
) -> None:
    with visiting(browser, f"http://{served.name}", forced_colors="active") as page:
        settled(page, "/?q=token")
        current = page.locator("#results a.row[aria-current]")
        expect(current).to_be_visible()
        assert current.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
        mark = page.locator("#results mark").first
        assert mark.evaluate("each => getComputedStyle(each).backgroundColor") != "rgba(0, 0, 0, 0)"


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


def test_results_are_announced_once_at_rest(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#home section").first).to_be_visible()
    page.evaluate(
        "window.said = []; new MutationObserver(() => said.push(document.getElementById('announce').textContent))"
        ".observe(document.getElementById('announce'), { childList: true })"
    )
    page.keyboard.type("zebra token", delay=120)
    expect(page.locator("#announce")).to_have_text(re.compile(r"\d+ results"))
    assert len(page.evaluate("said")) == 1
    for role in ("search", "main", "banner"):
        expect(page.get_by_role(role)).to_have_count(1)
    assert page.locator("h1").first.inner_text() == "Marklight"


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
    assert {"q", "documents", "help", "theme", "copy", "text", "rail"} <= set(seen)
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#results-panel")).to_be_focused()


def test_reduced_motion_is_respected(browser: Browser, served: Served) -> None:
    with visiting(browser, f"http://{served.name}", reduced_motion="reduce") as page:
        settled(page, "/?q=token&open=guide/tokens.md")
        moving = "[...document.querySelectorAll('*')].filter(each => getComputedStyle(each).transitionDuration !== '0s').length"
        assert page.evaluate(moving) == 0


@pytest.mark.parametrize(
    "file",
    sorted(file for file in WEB_FOLDER.iterdir() if file.suffix in (".html", ".css", ".js")),
    ids=lambda file: file.name,
)
def test_no_file_of_the_page_contains_what_the_policy_forbids(file: object) -> None:
    assert isinstance(file, Path)
    text = file.read_text("utf-8")
    assert "innerHTML" not in text
    assert not re.search(
        r"\beval\(|new Function|\son[a-z]+=\"|\sstyle=\"|<style|https?://(?!www\.w3\.org/2000/svg)",
        text,
    )
