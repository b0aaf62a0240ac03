"""The reader: passage, words of the query, outline, links, images, live changes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.http.test_page import PNG, SVG
from tests.surfaces.web.browsing import visiting

PDF = b"%PDF-1.4"
MATCHES = """name => [...(CSS.highlights.get(name) ?? [])].map(range => range.toString())"""
FEATURES = {
    "a.md": (
        "---\ntags: [x]\nauthor: Ada\n---\n# A\n\n> [!warning]- Careful\n> Hidden heron.\n>\n> > [!tip] Inner\n> > Nested.\n\n"
        "![[pic.png|50]] ![[i.svg#icon]] ![far](https://outside.invalid/x.png) ![[gone.png]] ![[paper.pdf]] ![A talk](talk.mp3) [the paper](files/paper.pdf)\n\n"
        "![[b#Part]]\n\nA note[^1], $a^2$ and ==marked==. %%secret%%\n\n[^1]: The footnote.\n\n"
        "```python\ndef f(): return 'a'\n```\n\n```mermaid\ngraph TD\n```\n\n/// tip | Boxed\n\nInside.\n\n///\n\n"
        "- [ ] open\n- [x] done\n\n" + "Filler paragraph.\n\n" * 60 + "## End\n\nThe end.\n"
    ),
    "b.md": "# B\n\n## Part\n\nEmbedded text. See [[a]] for more about it.\n\n## Other\n\nNot embedded.\n",
    "rtl.md": "# שלום\n\nשלום עולם, זה מסמך.\n\n> [!note] הערה\n> טקסט.\n",
}


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write(tmp_path_factory.mktemp("features") / "docs", FEATURES)
    (folder / "files").mkdir()
    (folder / "files" / "pic.png").write_bytes(PNG)
    (folder / "files" / "i.svg").write_bytes(SVG)
    (folder / "files" / "paper.pdf").write_bytes(PDF)
    (folder / "files" / "talk.mp3").write_bytes(b"ID3")
    with serving(folder, terminal={"link": "vscode"}) as each:
        yield each


@pytest.fixture
def document(browser: Browser, features: Served) -> Iterator[Page]:
    with visiting(browser, f"http://{features.name}") as page:
        page.goto("/?open=a.md")
        expect(page.locator("#text h1")).to_have_text("A")
        yield page


def is_in_sight(page: Page, block: Locator) -> bool:
    """Inside the part of the document that is shown."""
    pane, box = page.locator("#text").bounding_box(), block.bounding_box()
    assert pane
    assert box
    return pane["y"] <= box["y"] < pane["y"] + pane["height"]


def scroll(page: Page) -> float:
    return float(page.locator("#text").evaluate("pane => pane.scrollTop"))


def test_a_document_opens_at_its_passage_with_the_words_of_the_query_marked(page: Page) -> None:
    page.goto("/?q=%22exactly+ninety+minutes%22+token")
    page.locator("#results a.row").first.click()
    expect(page).to_have_title("Tokens")
    passage = page.locator("#text .in-passage")
    expect(passage.first).to_contain_text("ninety minutes")
    assert scroll(page) > 500
    assert is_in_sight(page, passage.first)
    assert page.evaluate("scrollY") == 0
    expect(passage.first).to_be_focused()
    assert {"ninety", "minutes", "token"} <= set(page.evaluate(MATCHES, "strong"))
    assert "Token" in {each.removesuffix("s") for each in page.evaluate(MATCHES, "weak")}
    expect(page.locator("#matches output")).to_have_text(re.compile(r"^\d+ of \d+$"))


def test_the_sentence_that_answers_is_marked_and_scrolled_to(
    browser: Browser, tmp_path: Path
) -> None:
    before = "".join(f"Paragraph {number} is about nothing.\n\n" for number in range(8))
    text = f"# Herons\n\n{before}A *heron* nests in `reeds`, [mostly](b.md). It is grey.\n"
    write(tmp_path / "docs", {"a.md": text, "b.md": "# Reeds\n\nThey grow.\n"})
    with serving(tmp_path / "docs") as each, visiting(browser, f"http://{each.name}") as page:
        page.set_viewport_size({"width": 1000, "height": 300})
        page.goto("/?q=heron+nests&nearest=1")
        expect(page.locator("#results .snippet").first).to_have_text(
            "A heron nests in reeds, mostly. It is grey."
        )
        page.locator("#results a.row").first.click()
        expect(page.locator("#text .in-passage").first).to_be_attached()
        page.wait_for_function("CSS.highlights.has('answer')")
        assert page.evaluate(MATCHES, "answer") == ["A heron nests in reeds, mostly"]
        assert page.evaluate(
            "[...CSS.highlights.get('answer')][0].getBoundingClientRect().bottom < innerHeight"
        )


def test_n_goes_to_the_next_match_and_only_inflections_are_marked(
    browser: Browser, tmp_path: Path
) -> None:
    text = (
        "# Forms\n\nA form, two forms, forming, formed. A format, a formal reform.\n"
        + "\nMore.\n" * 80
        + "\nThe last form.\n"
    )
    with (
        serving(write(tmp_path / "docs", {"f.md": text})) as served,
        visiting(browser, f"http://{served.name}") as page,
    ):
        page.goto("/?q=form&open=f.md")
        expect(page.locator("#matches output")).to_have_text("1 of 6")
        found = [*page.evaluate(MATCHES, "weak"), *page.evaluate(MATCHES, "strong")]
        assert sorted(found) == ["Forms", "form", "form", "formed", "forming", "forms"]
        page.locator("#text").focus()
        page.keyboard.press("N")
        expect(page.locator("#matches output")).to_have_text("6 of 6")
        assert page.evaluate(MATCHES, "current") == ["form"]
        assert is_in_sight(page, page.get_by_text("The last form."))
        page.keyboard.press("n")
        expect(page.locator("#matches output")).to_have_text("1 of 6")


def test_a_url_opens_a_document_at_a_passage(page: Page) -> None:
    page.goto("/?open=guide/tokens.md&lines=127-128")
    expect(page.locator("#text .in-passage")).to_have_text(re.compile("ninety minutes"))
    assert is_in_sight(page, page.locator("#text .in-passage"))


def test_the_rail_has_the_outline_with_the_current_heading(page: Page) -> None:
    page.goto("/?open=guide/tokens.md")
    outline = page.locator(".outline a")
    expect(outline).to_have_text(["Tokens", "Expiry", "Code"])
    expect(outline.nth(0)).to_have_attribute("aria-current", "location")
    outline.nth(2).click()
    expect(outline.nth(2)).to_have_attribute("aria-current", "location")
    assert is_in_sight(page, page.locator("#part-code"))


def test_the_rail_lists_backlinks_with_their_sentence_and_related_titles(document: Page) -> None:
    rail = document.locator("#rail")
    linked = rail.locator("section", has_text="Linked from")
    expect(linked.get_by_role("link")).to_have_text(["B"])
    expect(linked).to_contain_text("See a for more about it.")
    linked.get_by_role("link").click()
    expect(document).to_have_title("B")
    document.go_back()
    expect(document).to_have_title("A")


def test_the_graph_has_an_address_of_its_own_with_a_depth(page: Page) -> None:
    page.goto("/?open=guide/auth.md")
    expect(page.locator("#rail .drawing a")).to_have_count(3)
    page.get_by_role("link", name="Open the graph").click()
    page.wait_for_url(re.compile("graph=guide/auth.md"))
    dots = page.locator("#graph .drawing a")
    expect(dots).to_have_count(3)
    expect(dots.first).to_have_attribute("aria-label", "Authentication")
    one = page.locator("#graph").get_by_role("link", name="1", exact=True)
    one.click()
    page.wait_for_url(re.compile("depth=1"))
    expect(one).to_have_attribute("aria-current", "true")  # drawn again
    tokens = page.locator("#graph").get_by_role("link", name="Tokens", exact=True)
    tokens.focus()
    expect(page.locator("#graph line.lit")).not_to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_title("Tokens")
    expect(page.locator("#graph")).to_be_hidden()


def test_internal_links_open_in_the_reader_and_external_ones_in_a_new_tab(page: Page) -> None:
    page.goto("/?open=guide/auth.md")
    text = page.locator("#text")
    outside = text.get_by_role("link", name="the site")
    expect(outside).to_have_attribute("target", "_blank")
    expect(outside).to_have_attribute("rel", "noopener noreferrer")
    expect(text.get_by_text("gone", exact=True)).to_have_attribute("title", "Broken link")
    expect(text.locator(".image")).to_contain_text("Image not found")
    text.get_by_role("link", name="expiry").click()
    expect(page).to_have_title("Tokens")
    expect(page.locator("#part-expiry")).to_be_in_viewport()
    page.wait_for_url(re.compile(r"/\?open=guide/tokens\.md&at=expiry$"))
    text.get_by_role("link", name="auth").click()
    expect(page).to_have_title("Authentication")
    page.go_back()
    expect(page).to_have_title("Tokens")


def test_notes_look_as_in_their_editor(document: Page) -> None:
    text = document.locator("#text")
    warning = text.locator("details[data-callout=warning]")
    expect(warning.locator("summary")).to_have_text("Careful")
    expect(text.get_by_text("Hidden heron.")).to_be_hidden()
    warning.locator("summary").click()
    expect(warning.locator("[data-callout=tip]")).to_contain_text("Nested.")
    expect(text.locator("div[data-callout=tip] [data-title]").last).to_have_text("Boxed")
    image = text.locator("img[src='/api/files/files/pic.png']")
    assert image.evaluate("image => [image.naturalWidth, image.width]") == [1, 50]
    assert text.locator("img[data-icon]").evaluate("image => image.height") < 24
    far = text.get_by_role("link", name="Image on outside.invalid")
    expect(far).to_have_attribute("href", "https://outside.invalid/x.png")
    expect(text.locator("a.file")).to_have_text(["pdf paper.pdf", "mp3 A talk", "pdf the paper"])
    with document.expect_download() as download:
        text.locator("a.file").first.click()
    assert download.value.path().read_bytes() == PDF
    expect(text.locator("[data-embed]")).to_contain_text("Embedded text.")
    expect(text.locator("[data-embed]")).not_to_contain_text("Not embedded.")
    expect(text.locator("math")).to_have_count(1)
    assert document.evaluate(
        "document.fonts.ready.then(() => document.fonts.check('1em \"STIX Two Math\"'))"
    )
    expect(text.locator("mark")).to_have_text("marked")
    expect(text).not_to_contain_text("secret")
    expect(text.locator("pre .k").first).to_have_text("def")
    colours = text.locator("pre").first.evaluate(
        "pre => new Set([...pre.querySelectorAll('*')].map(each => getComputedStyle(each).color)).size"
    )
    assert colours >= 3
    expect(text.locator("[data-properties] td").last).to_have_text("Ada", use_inner_text=False)
    document.locator("#text sup a").click()
    expect(text.locator("[data-footnotes] li")).to_be_in_viewport()
    document.locator("[data-footnotes] a", has_text="↩").click()
    assert is_in_sight(document, text.locator("sup a"))


def test_code_can_be_copied(document: Page) -> None:
    document.context.grant_permissions(["clipboard-read", "clipboard-write"])
    document.locator("#text .code").first.hover()
    document.get_by_role("button", name="Copy code").first.click()
    expect(document.locator("#toast")).to_have_text("Copied code")
    assert document.evaluate("navigator.clipboard.readText()") == "def f(): return 'a'\n"


def test_text_from_right_to_left_has_its_direction(browser: Browser, features: Served) -> None:
    with visiting(browser, f"http://{features.name}") as page:
        page.goto("/?open=rtl.md")
        for part in ("h1", "p[data-lines='3-3']", "[data-callout]"):
            assert (
                page.locator(f"#text {part}").evaluate("each => getComputedStyle(each).direction")
                == "rtl"
            )
        assert (
            page.locator("#reader > header").evaluate("each => getComputedStyle(each).direction")
            == "ltr"
        )


def test_plain_text_is_shown_line_by_line(page: Page) -> None:
    page.goto("/?open=notes.txt&lines=1-2")
    block = page.locator("#text .in-passage")
    expect(block).to_have_text(
        "The espresso machine stands in the kitchen.\n  It is descaled on Fridays.",
        use_inner_text=True,
    )


def test_keys_copy_the_reference_and_a_quotation_and_open_the_editor(
    browser: Browser, features: Served
) -> None:
    with visiting(browser, f"http://{features.name}") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto("/?open=b.md&lines=5-5")
        page.locator("#text").focus()
        page.keyboard.press("y")
        expect(page.locator("#toast")).to_have_text("Copied reference")
        assert page.evaluate("navigator.clipboard.readText()") == "b.md:5-5"
        page.keyboard.press("q")
        expect(page.locator("#toast")).to_have_text("Copied quotation")
        quoted = page.evaluate("navigator.clipboard.readText()")
        assert quoted == "> Embedded text. See [[a]] for more about it.\n>\n> — B, b.md:5-5\n"
        folder = features.host.library.place.folder
        edit = page.get_by_role("link", name="Edit")
        expect(edit).to_have_attribute("href", f"vscode://file{folder}/b.md:5")
        page.evaluate(
            "document.getElementById('edit').addEventListener('click', event => { event.preventDefault(); window.edited = true })"
        )
        page.keyboard.press("o")
        assert page.evaluate("window.edited")


def test_without_an_editor_the_reference_is_copied(page: Page) -> None:
    page.goto("/?open=guide/tokens.md&lines=3-9")
    page.locator("#text").focus()
    page.keyboard.press("o")
    expect(page.locator("#toast")).to_contain_text("terminal.link")


def test_a_missing_document_is_reported(page: Page) -> None:
    page.goto("/?open=guide/token.md")
    expect(page.locator("#text")).to_contain_text("Document not found")
    expect(page.locator("#text")).to_contain_text("guide/tokens.md")
    page.goto("/?open=guide/auth.md")
    expect(page.locator("#text h1")).to_be_visible()


@pytest.mark.parametrize("name", ["100%.md", "a#b.md", "what?.md", "sp ace/ünï.md"])
def test_a_document_with_any_name_can_be_opened(
    browser: Browser, tmp_path: Path, name: str
) -> None:
    folder = write(
        tmp_path / "docs", {name: "# Odd\n\nThe heron.\n", "b.md": "# B\n\nThe egret.\n"}
    )
    with serving(folder) as served, visiting(browser, f"http://{served.name}") as page:
        page.goto("/?q=heron")
        page.locator("#results a.row").first.click()
        expect(page.locator("#text")).to_contain_text("heron")
        page.reload()
        expect(page.locator("#text")).to_contain_text("heron")


def test_a_long_document_is_shown_in_parts(browser: Browser, tmp_path: Path) -> None:
    text = "".join(f"# Part {number}\n\nText of {number}.\n\n" for number in range(3_000))
    folder = write(tmp_path / "docs", {"long.md": text})
    with serving(folder) as served, visiting(browser, f"http://{served.name}") as page:
        page.goto("/?open=long.md")
        expect(page.locator("#text .state")).to_contain_text("of 12,001")
        page.get_by_role("link", name="Next part").click()
        expect(page.locator("#text .in-passage")).to_be_visible()
        page.goto("/?open=long.md&at=part-2500")
        expect(page.locator("#part-part-2500")).to_be_in_viewport()


def test_a_changed_document_is_patched_in_place(browser: Browser, tmp_path: Path) -> None:
    blocks = [f"Paragraph {number}.\n\n" for number in range(200)]
    folder = write(
        tmp_path / "docs",
        {"a.md": "# A\n\n<details><summary>Fold</summary>Inside</details>\n\n" + "".join(blocks)},
    )
    with serving(folder) as served, visiting(browser, f"http://{served.name}") as page:
        page.goto("/?open=a.md")
        page.locator("#text summary").click()
        page.get_by_text("Paragraph 150.").evaluate(
            "each => { window.kept = each; each.scrollIntoView(); getSelection().selectAllChildren(each) }"
        )
        top = scroll(page)
        blocks[10] = "Something else.\n\nAnd a further paragraph.\n\n"
        (folder / "a.md").write_text(
            "# A\n\n<details><summary>Fold</summary>Inside</details>\n\n" + "".join(blocks)
        )
        expect(page.locator("#text")).to_contain_text("And a further paragraph.")
        assert page.evaluate("kept.isConnected && getSelection().toString()") == "Paragraph 150."
        assert page.evaluate("kept.dataset.lines") == "307-307"
        assert page.locator("#text details").first.evaluate("each => each.open")
        assert abs(scroll(page) - top) < 100


def test_an_idle_page_requests_nothing(page: Page) -> None:
    page.goto("/?q=zebra&open=guide/tokens.md")
    expect(page.locator("#text h1")).to_be_visible()
    page.wait_for_timeout(1500)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(4000)
    assert requests == []


def test_back_restores_query_list_document_and_scroll(page: Page) -> None:
    page.goto("/?q=zebra&nearest=1")
    rows = page.locator("#results a.row")
    expect(rows.nth(15)).to_be_attached()
    rows.nth(15).scroll_into_view_if_needed()
    before = page.locator("#results-panel").evaluate("panel => panel.scrollTop")
    assert before > 100
    page.goto("/?open=guide/tokens.md")
    page.locator("#text").evaluate("pane => { pane.scrollTop = 700 }")
    page.locator("#text").get_by_role("link", name="auth").evaluate("link => link.click()")
    expect(page).to_have_title("Authentication")
    page.go_back()
    expect(page).to_have_title("Tokens")
    page.wait_for_function("Math.abs(document.getElementById('text').scrollTop - 700) < 5")


def test_a_printed_document_is_complete(page: Page) -> None:
    page.goto("/?open=guide/tokens.md")
    expect(page.locator("#text h1")).to_be_visible()
    page.emulate_media(media="print")
    pane = page.locator("#text")
    assert pane.evaluate("pane => pane.scrollHeight <= pane.clientHeight + 1")
    expect(page.locator("#rail")).to_be_hidden()
    expect(page.locator(".bar")).to_be_hidden()


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
        assert page.evaluate("document.getElementById('text').scrollWidth") <= 400


def test_with_several_collections_documents_have_unique_names(
    browser: Browser, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "docs",
        {
            "one/a.md": "# A\n\nThe walrus. See [b](b.md).\n",
            "one/b.md": "# B\n\nThe narwhal.\n",
            "two/a.md": "# A\n\nThe dugong.\n",
        },
    )
    with (
        serving(folder, collections={"one": "one", "two": "two"}) as several,
        visiting(browser, f"http://{several.name}") as page,
    ):
        page.goto("/?q=dugong")
        expect(page.locator("#results .path").first).to_have_text("two/a.md")
        page.locator("#results a.row").first.click()
        expect(page.locator("#text")).to_contain_text("dugong")
        page.goto("/?open=one/a.md")
        page.locator("#text").get_by_role("link", name="b").click()
        expect(page).to_have_title("B")
        page.locator("#q").fill("walrus narwhal dugong")
        page.locator("#filters summary").click()
        page.get_by_label("Collection").select_option("one")
        expect(page.locator("#results .path")).to_have_count(2)
        assert set(page.locator("#results .path").all_text_contents()) == {"one/a.md", "one/b.md"}


def test_reading_a_document_writes_no_file(served: Served, page: Page) -> None:
    page.goto("/?open=notes.txt")
    expect(page.locator("#text")).to_contain_text("espresso")
    folder = Path(served.host.library.place.folder)
    assert sorted(each.name for each in folder.iterdir()) == ["guide", "many", "notes.txt"]


def test_reader_and_filters_use_the_same_date(browser: Browser, tmp_path: Path) -> None:
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
            page.locator("#results a.row").click()
            expect(page.locator("#text .facts time")).to_have_text(day)


def test_an_editor_address_runs_no_script(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "docs", {"a.md": "# A\n\nThe heron. ![[x.pdf]]\n"})
    link = "javascript://x/%0aopener(1)//{path}"
    with (
        serving(folder, terminal={"link": link}) as served,
        visiting(browser, f"http://{served.name}") as page,
    ):
        page.goto("/?open=a.md")
        expect(page.locator("#rail")).to_be_attached()
        page.wait_for_timeout(500)
        expect(page.locator("#edit")).to_be_hidden()
        expect(page.locator("#text a.file")).to_have_count(0)
