"""Text for models: compact, within its token budget, with omissions reported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight import Library
from marklight.model import Counts
from marklight.report import Extract
from marklight.surfaces.host import execute
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.token_budget import Block, fit
from marklight.text.tokens import fits
from tests.making import library, write

SENTENCES = " ".join(f"Sentence number {n} is about bananas." for n in range(1, 30))
LONG = "# Long\n\n" + "\n".join(f"Line {n} says that bananas are yellow." for n in range(3, 400))


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    pages = {
        "guide/auth.md": "# Auth\n\n## Token refresh\n\nA refresh token lives for thirty days.\n",
        "guide/fruit.md": f"# Fruit\n\n{SENTENCES}\n",
        "long.md": LONG,
        "one-line.md": f"# One\n\n{'bananas and more bananas ' * 500}\n",
        "bare.md": "Nothing but text.\n",
    }
    with library(write(tmp_path_factory.mktemp("docs"), pages)) as opened:
        opened.index()
        yield opened


def searched(lib: Library, tokens: int = 2000, **more: Any) -> str:
    found = execute(lib, "search", {"max_tokens": tokens, **more})
    return rendering.search_text(found, tokens=tokens)


def read(lib: Library, ref: str, tokens: int) -> tuple[Extract, str]:
    extract = rendering.limit_extract(lib.get(ref), tokens)
    return extract, rendering.extract_text(extract)


def test_a_result_has_its_location_headings_score_and_passage(lib: Library) -> None:
    text = searched(lib, query="refresh token lives thirty days", limit=1)
    score = lib.search("refresh token lives thirty days").hits[0].score
    assert text == (
        f"[1] guide/auth.md:5-5 § Auth > Token refresh ({score:.2f})\n> A refresh token lives for thirty days."
    )


def test_results_are_separated_by_a_blank_line(lib: Library) -> None:
    text = searched(lib, query="bananas", limit=3, path=["long.md", "guide/**"], tokens=100_000)
    heads = [line for line in text.splitlines() if line.startswith("[")]
    assert [line[:3] for line in heads] == ["[1]", "[2]", "[3]"]
    assert text.count("\n\n[") == 2


@pytest.mark.parametrize("tokens", [1, 10, 40, 60, 100, 200, 500, 1000, 5000])
def test_the_token_budget_includes_notes_and_headers(lib: Library, tokens: int) -> None:
    text = searched(lib, query="bananas", limit=5, tokens=tokens)
    assert fits(text, tokens)


def test_omitted_results_are_listed_with_references_that_work(lib: Library) -> None:
    text = searched(lib, query="bananas", limit=5, tokens=700, exclude=["one-line.md"])
    statement, _, places = text.rpartition(" left out to stay within 700 tokens: ")
    assert statement
    assert all("bananas" in lib.get(place).text for place in places.split(", "))


def test_a_passage_that_does_not_fit_is_cut_with_a_reference_to_its_rest(lib: Library) -> None:
    text = searched(lib, query="bananas", path=["long.md"], tokens=200)
    assert text.startswith("[1] long.md:")
    ref = text.split("text goes on to line ")[1].split("get_document ref='")[1].split("'")[0]
    assert "bananas" in lib.get(ref).text


def test_notes_are_dropped_before_results(lib: Library) -> None:
    found = execute(lib, "search", {"query": "bananas", "limit": 5, "max_tokens": 100})
    found = replace(found, notices=["another matter, told at length " * 4, *found.notices])
    text = rendering.search_text(found, "indexing, 15 % (embedding passages, 3 of 20)", 120)
    assert text.startswith("[1] ")
    assert fits(text, 120)


def test_results_omitted_by_the_library_and_by_the_text_are_counted_together(
    lib: Library,
) -> None:
    found = execute(lib, "search", {"query": "bananas", "limit": 5, "max_tokens": 120})
    text = rendering.search_text(found, tokens=120)
    whole = execute(lib, "search", {"query": "bananas", "limit": 5})
    assert len(found.hits) < len(whole.hits)
    assert text.count("omitted to stay within 120 tokens") == 1
    shown = sum(line.startswith("[") and "(0." in line for line in text.splitlines())
    reported = int(text.split(" omitted to stay")[0].split()[-2])
    assert shown + reported == len(whole.hits)


@given(
    st.lists(st.tuples(st.text(max_size=50), st.text(max_size=500)), max_size=8),
    st.lists(st.text(max_size=100), max_size=3),
    st.integers(1, 1000),
)
def test_no_text_exceeds_its_token_budget(
    blocks: list[tuple[str, str]], notes: list[str], tokens: int
) -> None:
    made = [Block(head, passage, head) for head, passage in blocks]
    text = fit(made, notes, tokens)
    assert fits(text, tokens)
    whole = "\n\n".join([*map(str, made), *(["\n".join(notes)] if notes else [])])
    if fits(whole, tokens):
        assert text == whole


@pytest.mark.parametrize("tokens", [60, 100, 300, 1000])
def test_a_truncated_document_can_be_read_to_its_end_by_the_given_references(
    lib: Library, tokens: int
) -> None:
    parts, ref = [], "long.md"
    for _ in range(400):
        extract, text = read(lib, ref, tokens)
        assert fits(text, tokens)
        parts.append(extract.text)
        more = [message for message in extract.notices if "continue with" in message]
        if not more:
            break
        ref = more[0].split("'")[1]
        assert ref in text
    assert "\n".join(parts) == LONG


def test_a_line_longer_than_the_budget_is_truncated_with_a_notice(lib: Library) -> None:
    extract, text = read(lib, "one-line.md:3-3", 100)
    assert fits(text, 100)
    assert extract.text.endswith(" …")
    assert extract.notices == ("line 3 is truncated; a larger max_tokens shows it in full",)
    assert extract.lines == (3, 3)


def test_a_short_document_is_returned_in_full(lib: Library) -> None:
    extract, text = read(lib, "bare.md", 2000)
    assert extract == execute(lib, "get", {"ref": "bare.md"})
    assert text == "document: bare.md:1-1 § bare\n> Nothing but text."


def test_nothing_found_abstained_not_indexed_and_empty_are_different_texts(lib: Library) -> None:
    filtered = searched(lib, query="bananas", path=["nowhere/**"])
    unlikely = searched(lib, query="bananas", min_confidence=1)
    found = execute(lib, "search", {"query": "bananas"})
    none = replace(found, hits=(), index=Counts())
    running = rendering.search_text(none, "indexing, 42 % (reading text, 42 of 100)")
    empty = rendering.search_text(none)
    assert "No passage matches path:nowhere/**" in filtered
    assert "below the minimum of 1" in unlikely
    assert running == (
        "Nothing is indexed yet. Try again in a moment.\nindexing, 42 % (reading text, 42 of 100)"
    )
    assert empty == "There are no documents."
    assert len({filtered, unlikely, running, empty}) == 4


def test_text_refers_to_tools_instead_of_commands(lib: Library) -> None:
    text = searched(lib, query="zebra crossing quantum", tokens=300)
    assert "confidence" not in text
    assert "No passage is likely to answer this (best 0." in text
    assert "). The closest passages:\n\n[closest 1] " in text
    assert "\n[closest 1] " in text
    assert "\n[1] guide" not in text
    assert fits(text, 300)
    assert "marklight" not in text


def test_passages_without_embeddings_are_reported(lib: Library) -> None:
    found = execute(lib, "search", {"query": "bananas"})
    half = replace(found, index=replace(found.index, unread=3))
    text = rendering.search_text(half)
    assert f"note: 3 of {found.index.chunks} passages have no embedding yet" in text


def test_an_explanation_lists_stages(lib: Library) -> None:
    text = searched(lib, query="bananas", explain=True, tokens=100_000)
    assert "\nwhy: " in text
    assert "candidates left after each stage: " in text


def test_an_outline_with_too_many_headings_omits_the_deepest(tmp_path: Path) -> None:
    page = "".join(f"# Part {n}\n\n" + "## Deeper heading\n\n" * 30 for n in range(20))
    with library(write(tmp_path, {"deep.md": page, "flat.md": "# One\n\n### Three\n"})) as lib:
        lib.index()
        text = rendering.outline_text(execute(lib, "outline", {"ref": "deep.md"}))
        assert fits(text, 2000)
        assert text.count(" Part ") == 20
        assert "note: 600 deeper headings omitted" in text
        flat = rendering.outline_text(execute(lib, "outline", {"ref": "flat.md"}))
        assert flat.splitlines() == [
            "document: flat.md",
            ":1-3  One  #one",
            ":3-3      Three  #three",
        ]


def test_control_characters_are_removed_from_text(tmp_path: Path) -> None:
    with library(
        write(tmp_path, {"a.md": "# Es\x1b[31mcape\n\nbananas \x1b]8;;x\x07 here\n"})
    ) as lib:
        lib.index()
        assert "\x1b" not in searched(lib, query="bananas")
        assert "\x1b" not in rendering.outline_text(execute(lib, "outline", {"ref": "a.md"}))


def test_ignored_folder_settings_are_reported_in_every_answer(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a.md": "# Apples\n\nApples are red.\n", "marklight.toml": "serve.start = true\n"},
    )
    with library(tmp_path) as lib:
        lib.index()
        note = f"note: Ignored in {tmp_path}/marklight.toml: serve.start."
        assert note in searched(lib, query="apples")
        assert note in rendering.status_text(execute(lib, "status", {}), "", watching=False)
        assert note in read(lib, "a.md", 2000)[1]


def test_a_list_has_its_count_first_and_a_line_for_each_document(lib: Library) -> None:
    found = execute(
        lib, "list_documents", {"query": "bananas", "sort": "path", "min_confidence": 1}
    )
    head, *rows = rendering.listing_text(found).splitlines()
    assert head.startswith("3 documents, ")
    assert re.search(r" passages \(page 1 of 1, by path, all dated [0-9-]{10}\)$", head)
    assert not any("0.00" in row or "20" in row.split(" § ")[1] for row in rows)
    assert [row.split(" § ")[0] for row in rows] == [
        "[1] guide/fruit.md",
        "[2] long.md",
        "[3] one-line.md",
    ]


def test_doubtful_results_begin_with_a_line_that_states_it_and_are_not_shortened(
    lib: Library,
) -> None:
    found = execute(lib, "search", {"query": "bananas", "limit": 3})
    text = "One sentence about fruit. " * 40
    hits = tuple(
        replace(hit, score=0.1, chunk=replace(hit.chunk, text=text), coverage=0.0)
        for hit in found.hits
    )
    doubtful = replace(found, hits=hits, calibrated=True)
    first, _, rest = rendering.search_text(doubtful).partition("\n\n")
    assert first == "No passage is likely to answer this (best 0.10). The closest passages:"
    assert rest.startswith("[1] ")
    assert text.strip() in rest
    sure = replace(doubtful, hits=(replace(hits[0], score=0.8), *hits[1:]))
    assert rendering.search_text(sure).startswith("[1] ")
    assert rendering.search_text(replace(doubtful, calibrated=False)).startswith("[1] ")


def test_a_list_stays_within_its_budget_and_counts_what_is_omitted(lib: Library) -> None:
    found = execute(lib, "list_documents", {})
    text = rendering.listing_text(found, tokens=60)
    assert fits(text, 60)
    assert text.startswith("5 documents, ")
    assert " of this page omitted; increase max_tokens to see them" in text
    none = execute(lib, "list_documents", {"query": "zebra", "mode": "keyword"})
    assert rendering.listing_text(none).startswith("0 documents. No document matches")
