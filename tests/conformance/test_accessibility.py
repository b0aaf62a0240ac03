"""The web page has no accessibility defect that axe-core finds: fourteen states, light, dark and forced colours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conformance.node import AXE, installed
from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web import browsing
from tests.surfaces.web.test_reader import FEATURES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("RUN_CONFORMANCE"),
        reason="downloads an npm package; `scripts/bench conformance` runs it",
    ),
]

STATES = (
    "/",
    "/?q=token",
    "/?q=zebra&nearest=1",
    "/?q=zebra&documents=1",
    "/?q=xylophone+quartets",
    "/?q=token&tag=nowhere",
    "/?q=refresh_token&kind=code&tag=api",
    "/?open=guide/tokens.md&lines=127-140",
    "/?q=token&open=guide/auth.md",
    "/?open=guide/nowhere.md",
    "/?open=features/a.md",
    "/?open=features/rtl.md",
    "/?graph=guide/auth.md",
    "/?q=token#menu",
)
WIDTHS = (320, 800, 1280, 1920)


@pytest.fixture(scope="module")
def axe() -> str:
    return (installed(AXE) / "node_modules/axe-core/axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    notes = {f"features/{name}": text for name, text in FEATURES.items()}
    folder = write(tmp_path_factory.mktemp("axe") / "docs", {**browsing.PAGES, **notes})
    with serving(folder) as each:
        yield each


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing.chromium() as started:
        yield started


def findings(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    found: Any = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {node['html'][:150]} {node.get('failureSummary', '')[:200]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("look", ["light", "dark", "forced"])
def test_axe_finds_nothing(browser: Browser, served: Served, axe: str, look: str) -> None:
    options: dict[str, Any] = (
        {"forced_colors": "active"} if look == "forced" else {"color_scheme": look}
    )
    found: dict[str, list[str]] = {}
    with browsing.visiting(browser, f"http://{served.name}", **options) as page:
        for number, address in enumerate(STATES):
            width = WIDTHS[number % len(WIDTHS)] if look == "light" else 1280
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(address)
            shown = page.locator(
                "#home section, #results li, #state .state, #text > *, #graph .drawing"
            )
            expect(shown.filter(visible=True).first).to_be_visible()
            page.wait_for_timeout(700)
            if address.endswith("#menu"):
                page.locator(".menu summary").first.click()
            if problems := findings(page, axe):
                found[f"{address} {width}"] = problems
    assert found == {}
