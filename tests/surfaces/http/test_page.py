"""The files of the page over a real socket: what they are, under which policy, and nothing beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from marklight.surfaces.http.page import FOLDER, TYPES
from tests.surfaces.http.serving import Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("page") / "docs") as each:
        yield each


@pytest.mark.parametrize("name", ["", *(f"page/{each.name}" for each in FOLDER.iterdir())])
def test_every_file_is_served_as_what_it_is_and_may_do_next_to_nothing(
    served: Served, name: str
) -> None:
    told = served.get(f"/{name}")
    assert told.status == 200
    assert told.headers["content-type"] in TYPES.values()
    policy = told.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert {"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in told.headers["content-security-policy"]
    assert told.headers["x-content-type-options"] == "nosniff"
    assert served.get(f"/{name}", **{"If-None-Match": told.headers["etag"]}).status == 304


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "../http/page.py", "..%2fhttp%2fpage.py", "%2e%2e/x", "", "x%00", "index.html/"],
)
def test_nothing_but_its_files_is_there(served: Served, name: str) -> None:
    told = served.get(f"/page/{name}")
    assert told.status == 404
    assert told.json()["error"]["type"] == "NotFound"


def test_every_file_that_another_names_is_there() -> None:
    here = {each.name for each in FOLDER.iterdir()}
    named = set()
    for each in FOLDER.iterdir():
        text = each.read_text("utf-8")
        named |= {*re.findall(r'"/page/([^"]+)"', text), *re.findall(r'from "\./([^"]+)"', text)}
    assert named == here - {"index.html"}


def test_a_document_is_told_as_safe_html_with_its_lines(served: Served) -> None:
    told = served.get("/api/page/deploy/scale.md")
    assert told.status == 200
    page = told.json()
    assert page["title"] == "Scaling"
    assert page["lines"] == [1, page["of_lines"]]
    assert '<h1 data-lines="1-1" id="part-scaling">' in page["html"]
    assert 'href="marklight:deploy/rollback.md"' in page["html"]
    assert page["outline"] == [
        {"level": 1, "text": "Scaling", "anchor": "scaling", "lines": [1, 3]}
    ]
    assert served.get("/api/page/nothing.md").status == 404
    assert served.get("/api/page/auth.md?line=0").status == 422
