"""The page with a language model: sentences with links to their sources, and nothing of it is markup."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from marklight.models.remote import client
from tests.hostile import HOSTILE, RUN
from tests.making import write
from tests.models.chatting import Chat, chatting
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web.browsing import PAGES, visiting
from tests.surfaces.web.test_layout import CONTRAST, NAMELESS

EXPIRES = "An access token expires after exactly ninety minutes [1]."
QUESTION = "/?q=access+token+expires&nearest=1"


@pytest.fixture(scope="module")
def does() -> Chat:
    return Chat()


@pytest.fixture(scope="module")
def answered(does: Chat, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write(tmp_path_factory.mktemp("answering") / "docs", PAGES)
    with (
        pytest.MonkeyPatch.context() as patch,
        chatting(does) as address,
        serving(folder, ask={"name": "openai:m", "address": address}) as each,
    ):
        patch.setattr(client, "FIRST_PAUSE_SECONDS", 0.01)
        yield each


@pytest.fixture
def page(browser: Browser, answered: Served, does: Chat) -> Iterator[Page]:
    does.__init__(EXPIRES)  # type: ignore[misc]
    with visiting(browser, f"http://{answered.name}") as opened:
        yield opened


def asked(page: Page) -> None:
    page.goto(QUESTION)
    expect(page.locator("#results li").first).to_be_visible()
    page.get_by_role("button", name="Answer").click()


def test_without_a_model_there_is_no_button(browser: Browser, served: Served) -> None:
    with visiting(browser, f"http://{served.name}") as page:
        page.goto("/?q=token")
        expect(page.locator("#results li").first).to_be_visible()
        expect(page.locator("#ask")).to_be_hidden()


def test_nothing_is_sent_before_the_button_is_pressed(page: Page, does: Chat) -> None:
    page.goto(QUESTION)
    expect(page.locator("#results li").first).to_be_visible()
    expect(page.locator("#answer")).to_be_hidden()
    assert does.requests == []


def test_a_sentence_links_to_the_passage_that_it_rests_on(page: Page) -> None:
    asked(page)
    expect(page.locator("#answer-text p")).to_have_text(
        "An access token expires after exactly ninety minutes. 1"
    )
    expect(page.locator("#answer-status")).to_contain_text("Written by openai:m from")
    page.locator("#answer .citation").click()
    expect(page.locator("#place")).to_contain_text("guide/tokens.md")
    expect(page.locator("#answer")).to_be_visible()


def test_paragraphs_lists_and_code_keep_their_shape(page: Page, does: Chat) -> None:
    does.reply = (
        f"{EXPIRES}\n\nThen [1]:\n\n- It is **refreshed** [1].\n- Or `dropped` [1].\n\n"
        "```python\nrenew(token)\n```"
    )
    asked(page)
    expect(page.locator("#answer-text > p")).to_have_count(2)
    expect(page.locator("#answer-text li")).to_have_count(2)
    expect(page.locator("#answer-text li strong")).to_have_text("refreshed")
    expect(page.locator("#answer-text li code")).to_have_text("dropped")
    expect(page.locator("#answer-text pre")).to_have_text("renew(token)")


def test_an_unsupported_sentence_is_marked(page: Page, does: Chat) -> None:
    does.reply = f"{EXPIRES} Penguins eat krill in the Antarctic [1]."
    asked(page)
    expect(page.locator("#answer .unsupported")).to_have_text(
        "Penguins eat krill in the Antarctic."
    )
    expect(page.locator("#answer-status")).to_contain_text("1 sentence not supported")


def test_sentences_appear_while_the_model_writes_and_stop_ends_it(page: Page, does: Chat) -> None:
    does.reply, does.endless, does.pause_seconds = f"{EXPIRES} ", True, 0.02
    asked(page)
    expect(page.locator("#answer .citation").first).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#answer-status")).to_have_text("Stopped.")
    assert does.left.wait(20)
    expect(page.get_by_role("button", name="Answer")).to_be_enabled()


def test_another_query_removes_the_answer_and_stops_the_model(page: Page, does: Chat) -> None:
    does.reply, does.endless, does.pause_seconds = f"{EXPIRES} ", True, 0.02
    asked(page)
    expect(page.locator("#answer .citation").first).to_be_visible()
    page.locator("#q").fill("espresso")
    expect(page.locator("#answer")).to_be_hidden()
    assert does.left.wait(20)


def test_a_failing_model_is_reported(page: Page, does: Chat) -> None:
    does.statuses = [500] * 9
    asked(page)
    expect(page.locator("#answer-status.problem")).to_contain_text("status 500")


def test_an_abstention_calls_no_model(page: Page, does: Chat) -> None:
    page.goto("/?q=%22xylophone+quartets%22")
    page.get_by_role("button", name="Answer").click()
    expect(page.locator("#answer-status")).to_contain_text("No model was called")
    assert does.requests == []


@pytest.mark.parametrize("part", range(4))
def test_nothing_that_a_model_writes_is_markup(page: Page, does: Chat, part: int) -> None:
    attacks = [" ".join(text.split()) for text in HOSTILE[part::4]]
    does.reply = "\n".join(
        [*(f"{text} [1]." for text in attacks), f"<img src=x onerror={RUN}>[1].", EXPIRES]
    )
    does.piece = 200
    asked(page)
    expect(page.locator("#answer-status")).to_contain_text("Written by")
    assert page.evaluate("window.ran") is None
    tags = "img, script, iframe, svg, form, input, a:not(.citation), [onerror], [onclick], [style]"
    assert page.locator("#answer-text").locator(tags).count() == 0


def test_hidden_characters_of_a_model_are_escaped(page: Page, does: Chat) -> None:
    does.reply = "An access\u202e token expires\U000e0041 after ninety minutes [1]."
    asked(page)
    expect(page.locator("#answer-text p")).to_contain_text("\\u202e")
    expect(page.locator("#answer-text p")).to_contain_text("\\U000e0041")


def test_the_answer_is_readable_and_named(page: Page, does: Chat) -> None:
    does.reply = f"{EXPIRES} Penguins eat krill in the Antarctic [1]."
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        asked(page)
        expect(page.locator("#answer-status")).to_contain_text("Written by")
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(CONTRAST) == []


def test_a_narrow_page_does_not_scroll_sideways(
    browser: Browser, answered: Served, does: Chat
) -> None:
    does.__init__(f"{EXPIRES}\n```\n{'long ' * 60}\n```\n{'x' * 300} [1].")  # type: ignore[misc]
    size = {"width": 360, "height": 640}
    with visiting(browser, f"http://{answered.name}", viewport=size) as page:
        asked(page)
        expect(page.locator("#answer-status")).to_contain_text("Written by")
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 360
