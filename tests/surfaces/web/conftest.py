"""One browser and one served library for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.making import write
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.web import browsing


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=browsing.WAIT_MS)
    with browsing.chromium() as started:
        yield started


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = write(tmp_path_factory.mktemp("web") / "docs", browsing.PAGES)
    # Linked documents are listed although the first result is certain, so that tests of the layout see them.
    with serving(folder, search={"linked": {"below": 1.0}}) as each:
        yield each


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    with browsing.visiting(browser, f"http://{served.name}") as opened:
        yield opened
