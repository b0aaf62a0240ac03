"""Tool calls that save others: several queries, several documents, outlines by section and page, lists by links."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client

from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.server import make_server
from marklight.text.tokens import fits
from tests.making import library, write

from .serving import PAGES, indexed, text_of

BIG = "# Notes\n\n" + "".join(
    f"## 1.{n} (2026)\n\n### Added\n\nBananas {n}.\n\n### Fixed\n\nApples {n}.\n\n"
    for n in range(200)
)
DATED = "---\ntags: [garden]\ncategory: home\ndate: 2026-03-05\n---\n# Roses\n\nSee [auth](guide/auth.md).\n"


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[Client]:
    host = LibraryHost(library(folder))
    async with host.open(), Client(make_server(host), mode="legacy") as client:
        await indexed(client)
        yield client


class Asking:
    """A client of one library for all tests here, which only read."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal, self.client = portal, client

    def __call__(self, tool: str, *, error: bool = False, **given: Any) -> str:
        result = self.portal.call(self.client.call_tool, tool, given)
        assert bool(result.is_error) == error, text_of(result)
        return text_of(result)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    pages = {**PAGES, "big.md": BIG, "roses.md": DATED}
    folder = write(tmp_path_factory.mktemp("calls"), pages)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(connected(folder)) as client,
    ):
        yield Asking(portal, client)


def heads(text: str) -> list[tuple[str, float]]:
    found = re.findall(r"^\[\d+\] (\S+?:\d+-\d+) .*\((\d\.\d\d)\)$", text, re.MULTILINE)
    return [(path, float(score)) for path, score in found]


def test_a_passage_has_the_best_score_of_several_queries(ask: Asking) -> None:
    queries = ["how long does a refresh token live", "boil carrots with ginger"]
    common: dict[str, Any] = {"min_score": 0, "top_n": 10, "max_chunks_per_document": 10}
    alone = [dict(heads(ask("query_documents", query=each, **common))) for each in queries]
    fused = heads(ask("query_documents", query=queries[0], queries=[queries[1]], **common))
    assert {"guide/auth.md:6-10", "recipes/soup.md:3-3"} <= {place for place, _ in fused}
    for place, score in fused:
        assert score == max(each.get(place, 0.0) for each in alone)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


def test_queries_have_types(ask: Asking) -> None:
    text = ask(
        "query_documents",
        query="zebra",
        queries=[
            {"type": "keyword", "query": "carrots"},
            {"type": "semantic", "query": "boil ginger"},
            {"type": "hypothesis", "query": "Carrots are boiled with ginger for twenty minutes."},
        ],
        min_score=0,
        max_tokens=100,
    )
    assert "recipes/soup.md" in text
    assert fits(text, 100)
    wrong = ask("query_documents", error=True, query="x", queries=[{"type": "lex", "query": "x"}])
    assert wrong.endswith("Allowed: hybrid, keyword, semantic, hypothesis")


def test_queries_are_accepted_in_equivalent_forms(ask: Asking) -> None:
    keyword = {"type": "keyword", "query": "carrots"}
    for queries in ([keyword], keyword, json.dumps([keyword]), [{**keyword, "text": "carrots"}]):
        assert "recipes/soup.md" in ask("query_documents", query="zebra", queries=queries)
    assert "recipes/soup.md" in ask("query_documents", query="zebra", queries="boil carrots")
    for wrong in ([5], [{"type": "keyword"}], [{"query": " "}], ["x"] * 9):
        ask("query_documents", error=True, query="zebra", queries=wrong)


def test_several_documents_are_read_in_one_call(ask: Asking) -> None:
    text = ask("get_document", ref=["guide/auth.md#token-refresh", "recipes/soup.md", "nope.md"])
    places = re.findall(r"^document: (\S+)", text, re.MULTILINE)
    assert places == ["guide/auth.md:8-10", "recipes/soup.md:1-3"]
    assert text.splitlines()[-1].startswith("note: No document is called 'nope.md'")
    assert (
        ask("get_document", ref='["guide/auth.md#token-refresh", "recipes/soup.md", "nope.md"]')
        == text
    )
    assert "No document is called" in ask("get_document", error=True, ref=["nope.md", "no.md"])
    ask("get_document", error=True, ref=[])


def test_a_glob_reads_every_document_that_matches(ask: Asking) -> None:
    text = ask("get_document", ref="guide/*.md")
    assert re.findall(r"^document: (\S+?):", text, re.MULTILINE) == [
        "guide/auth.md",
        "guide/tokens.md",
    ]
    assert "No document is called 'nowhere/*'" in ask("get_document", error=True, ref="nowhere/*")


@pytest.mark.parametrize("tokens", [60, 150, 400, 5000])
def test_several_documents_share_the_token_budget(ask: Asking, tokens: int) -> None:
    text = ask("get_document", ref=["big.md", "recipes/soup.md", "roses.md"], max_tokens=tokens)
    assert fits(text, tokens)
    shown = re.findall(r"^document: (\S+?):", text, re.MULTILINE)
    assert shown[0] == "big.md"
    if tokens >= 400:
        assert shown == ["big.md", "recipes/soup.md", "roses.md"]
        assert "Boil the carrots" in text, "short ones are whole"
        assert "continue with ref='big.md:" in text
    elif len(shown) < 3 and tokens > 100:
        assert "not shown; get_document ref=[" in text


def test_lines_have_numbers_on_request(ask: Asking) -> None:
    text = ask("get_document", ref="recipes/soup.md:1-3", line_numbers=True)
    assert text.splitlines()[1:] == [
        "> 1: # Soup",
        "> 2: ",
        "> 3: Boil the carrots with ginger for twenty minutes.",
    ]


def test_the_pages_of_an_outline_contain_every_heading_once(ask: Asking) -> None:
    seen: list[str] = []
    page, pages = 1, 1
    while page <= pages:
        text = ask("outline", ref="big.md", depth=9, page=page, max_tokens=500)
        assert fits(text, 500)
        rows = [line for line in text.splitlines() if line.startswith(":")]
        assert rows
        seen += rows
        pages = int(re.findall(r"page \d+ of (\d+)", text)[0])
        page += 1
    assert len(seen) == len(set(seen)) == 601


def test_a_long_outline_shows_the_levels_that_fit_and_is_never_a_title_alone(ask: Asking) -> None:
    text = ask("outline", ref="big.md")
    assert text.count(" 1.") == 200 or "page 1 of" in text
    assert "note: 400 deeper headings omitted; depth=3 or section shows more" in text
    assert "Added" not in text
    small = ask("outline", ref="big.md", max_tokens=200)
    assert "  1.0 (2026)" in small
    assert "page=2 continues" in small


def test_an_outline_is_limited_to_a_section(ask: Asking) -> None:
    for section in ("1.7 (2026)", "17-2026", "1.7 ("):
        text = ask("outline", ref="big.md", section=section)
        assert [line.split("  #")[0].split(maxsplit=1)[1] for line in text.splitlines()[1:]] == [
            "1.7 (2026)",
            "Added",
            "Fixed",
        ]
    wrong = ask("outline", error=True, ref="guide/auth.md", section="Token refresch")
    assert wrong.startswith("guide/auth.md has no heading 'Token refresch'. Did you mean")
    assert ask("outline", ref="big.md", depth=1).splitlines()[1].endswith("Notes  #notes")


def test_documents_are_listed_by_links_tags_category_and_date(ask: Asking) -> None:
    def listed(**given: Any) -> list[str]:
        return re.findall(r"^\[\d+\] (\S+)", ask("list_documents", **given), re.MULTILINE)

    assert listed(links_to="guide/auth.md") == ["roses.md"]
    assert listed(links_to="guide/tokens.md#expiry") == ["guide/auth.md"]
    assert listed(links_to="guide/auth.md", tags=["nothing"]) == []
    assert listed(links_from="roses.md") == ["guide/auth.md"]
    assert listed(category="home") == listed(tags="garden") == ["roses.md"]
    assert "roses.md" not in listed(changed_since="2026-04")
    assert "roses.md § Roses (1 passage, 2026-03-05)" in ask("list_documents", category="home")
    both = ask("list_documents", error=True, links_to="roses.md", links_from="roses.md")
    assert both.startswith("links_to, links_from and path cannot be combined")
    assert "recipes/soup.md links to no document" in ask(
        "list_documents", error=True, links_from="recipes/soup.md"
    )
    assert "No document links to recipes/soup.md" in ask(
        "list_documents", error=True, links_to="recipes/soup.md"
    )


def test_the_tags_of_the_library_are_listed_with_counts(ask: Asking) -> None:
    assert (
        ask("list_documents", show="tags") == "3 tags: security (2), garden (1), security/keys (1)"
    )


def test_what_is_called_in_one_call_is_cancelled_with_it(ask: Asking) -> None:
    async def main() -> None:
        with anyio.move_on_after(0):
            await ask.client.call_tool("get_document", {"ref": ["big.md", "roses.md"]})

    ask.portal.call(main)
    assert "documents, " in ask("index_status")
