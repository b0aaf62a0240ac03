"""A real browser for tests: the system's Chromium, with every error of the page recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WAIT_MS = 30_000
"""Far more than anything takes: nothing here is about time."""
WORDS = [
    f"{one}{other}"
    for one in "ba de fi go hu ka le mi no pu ra te vo".split()
    for other in "bel dar fin gor lum mak nis pol rut sev tam wix zon".split()
]
"""Enough that no two documents of them are taken for one."""
PAGES = {
    "guide/auth.md": (
        "---\ntags: [security]\n---\n# Authentication\n\nWho you are is told by a token. See [expiry](tokens.md#expiry), "
        "[[Caching]], [[gone]] and [the site](https://outside.invalid/).\n\n![the flow](flow.png)\n"
    ),
    "guide/tokens.md": (
        "---\ntags: [security, api]\n---\n# Tokens\n\n"
        + "".join(f"Paragraph {number} is here to be scrolled over.\n\n" for number in range(60))
        + "## Expiry\n\nAn access token expires after exactly ninety minutes.\n\n- it is refreshed\n- or dropped\n\n"
        + "What happens then is told at length, so that this section is a passage of its own. " * 12
        + "\n\n"
        + "## Code\n\n```python\ndef refresh_token(token):\n    return renew(token)\n```\n\nBack to [[auth]].\n"
    ),
    "guide/caching.md": "---\naliases: [What is kept for a day]\n---\n# Caching\n\nCaches are emptied at midnight.\n\n| cache | kept |\n|---|---|\n| pages | a day |\n",
    "notes.txt": "The espresso machine stands in the kitchen.\n  It is descaled on Fridays.\n",
    **{
        f"many/{number}.md": f"# Zebra {number}\n\nA zebra {' '.join(WORDS[number * 6 : number * 6 + 6])}.\n"
        for number in range(25)
    },
}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Started once for many tests; never downloaded."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; install the system's package to test the page")
    # Its sandbox refuses to start as root, which is who runs tests in a container.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@contextmanager
def visiting(browser: Browser, base: str, **options: Any) -> Iterator[Page]:
    """A page that fails the test if anything in it fails, runs a dialog, breaks the policy or asks elsewhere."""
    troubles: list[str] = []
    context = browser.new_context(base_url=base, **options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()

    def refuse(dialog: Dialog) -> None:
        troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", refuse)
    page.on(
        "console",
        lambda message: (
            troubles.append(message.text) if "Security Policy" in message.text else None
        ),
    )
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(f"{base}/")
            else troubles.append(f"requested {request.url}")
        ),
    )
    page.add_init_script(
        "addEventListener('securitypolicyviolation', event => { window.violated = event.violatedDirective })"
    )
    yield page
    if not page.is_closed() and page.evaluate("window.violated ?? window.ran"):
        troubles.append("the policy was violated, or something ran")
    context.close()
    assert troubles == []


def asks(page: Page, **expected: list[str]) -> None:
    """Wait until the URL has these parameters and no others."""
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)


def typed(page: Page, text: str) -> None:
    """Type a text into the field and wait for the results of the whole of it."""
    expect(page.locator("#q")).to_be_focused()
    with page.expect_response(
        lambda response: "/api/search" in response.url and has_query(text, response.url)
    ):
        page.keyboard.type(text)
    expect(page.locator("#results-panel")).not_to_have_attribute("aria-busy", "true")


def has_query(text: str, url: str) -> bool:
    """Return true if a URL asks for this text."""
    return parse_qs(urlsplit(url).query).get("q") == [text]
