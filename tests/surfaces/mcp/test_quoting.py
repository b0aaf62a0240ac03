"""Quoting rule of text for models: whatever documents contain, only our lines parse as ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.answer import CHARACTERS_PER_TOKEN, Answer, Hit
from marklight.formatting import one_line, place_text, visible
from marklight.model import DocumentId, trail
from marklight.query import Query
from marklight.report import Extract
from marklight.surfaces.mcp import documents, rendering
from marklight.surfaces.mcp.introduction import USAGE
from marklight.surfaces.mcp.rendering import QUOTED
from marklight.surfaces.mcp.tool_definitions import tools_for
from marklight.surfaces.operations import call
from tests.forgery import DANGEROUS, HEADER, NOTE, TEXT, read_answer, texts
from tests.making import chunk, library, write

names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
) | st.sampled_from([HEADER, f"x\n{HEADER}", "a.md:1-4 § Policy", "b (0.99)", NOTE, "> q", "§ 433"])
hits = st.lists(
    st.builds(
        lambda path, title, headings, text, score: Hit(
            replace(chunk("id", text or "x", path or "x", tuple(headings)), title=title), score
        ),
        names,
        names,
        st.lists(names, max_size=3),
        texts,
        st.floats(0, 1),
    ),
    max_size=5,
)


def found(hits: list[Hit], notices: list[str]) -> dict[str, Any]:
    answer = Answer(Query("words"), tuple(hits), notices=notices).to_dict()
    return {**answer, "index": {**answer["index"], "documents": 1}}


def expected(rank: int, hit: Hit) -> tuple[int, str, str, str, str]:
    headings = one_line(trail(hit.chunk.title, hit.chunk.headings))
    text = visible(hit.chunk.text.strip())
    return (
        rank,
        place_text(hit.chunk.document, lines=hit.chunk.lines),
        headings,
        f"{hit.score:.2f}",
        text,
    )


@given(hits, st.lists(names, max_size=2))
@settings(max_examples=300)
def test_parsing_a_text_by_the_quoting_rule_returns_the_results(
    hits: list[Hit], notices: list[str]
) -> None:
    hits = [Hit(hit.chunk, round(hit.score, 4)) for hit in hits]
    text = rendering.search_text(found(hits, notices), False, "", 100_000)
    if not hits:
        assert text.startswith("No passage matches the query")
        return
    results, ours = read_answer(text)
    assert [tuple(each) for each in results] == [
        expected(rank, hit) for rank, hit in enumerate(hits, 1)
    ]
    assert ours == [f"note: {one_line(each)}" for each in notices if each]
    assert not DANGEROUS.search(text)


@given(hits.filter(bool), st.integers(1, 400))
def test_within_any_budget_results_are_complete_or_truncated(hits: list[Hit], tokens: int) -> None:
    text = rendering.search_text(found(hits, []), False, "", tokens)
    assert len(text) <= tokens * CHARACTERS_PER_TOKEN
    if not text.startswith("[1] ") or " is truncated; " in text.split("\n")[0] or tokens < 100:
        return  # not even a header fits
    for reported, (rank, hit) in zip(read_answer(text)[0], enumerate(hits, 1), strict=False):
        *head, whole = expected(rank, hit)
        assert list(reported[:4]) == head
        assert whole.startswith(reported.text.removesuffix("…").rstrip())


@given(names, names, st.lists(names, max_size=2), texts, st.integers(100, 3000))
def test_a_document_is_quoted_within_any_budget(
    path: str, title: str, headings: list[str], text: str, tokens: int
) -> None:
    lines = (1, text.count("\n") + 1)
    extract = Extract(DocumentId("default", path), title, tuple(headings), lines, text).to_dict()
    shown = documents.extract_text(documents.limit_extract(extract, False, tokens), False)
    first, *rest = shown.split("\n")
    assert first.startswith("document: ")
    assert not DANGEROUS.search(shown)
    around = len(first) + 2 * len(path) * 10 + 400
    assert len(shown) <= max(tokens * CHARACTERS_PER_TOKEN, around)
    content = [line for line in rest if line.startswith(">")]
    assert all(not line or line.startswith("note: ") for line in rest if line not in content)
    if len(content) == lines[1] and not content[-1].endswith("…"):
        assert "\n".join(line[2:] for line in content) == visible(text)


def test_text_of_documents_never_starts_a_line(tmp_path: Path) -> None:
    pages: dict[str, str | bytes] = {
        f"{HEADER}.md": f"---\ntags: ['{NOTE}']\n---\n# {HEADER}\n\n## {NOTE}\n\ntext\n",
        f"{NOTE[:20]}.md": f"---\ntags: ['{NOTE}']\n---\n# > {NOTE}\n\n[[{HEADER}]]\n",
        "bare.md": "no headings\n",
        "note: bad.md": b"\xff\xfe\x00bad \x00",
    }
    with library(write(tmp_path, pages)) as lib:
        lib.index()
        outline = documents.outline_text(call(lib, "outline", {"ref": f"{HEADER}.md"}), False)
        assert [line[:10] for line in outline.splitlines()] == [
            "document: ",
            f":4-8 {HEADER[:5]}",
            f":6-8   {NOTE[:3]}",
        ]
        bare = documents.outline_text(call(lib, "outline", {"ref": "bare.md"}), False)
        assert bare == "no headings in document: bare.md"
        related = documents.related_text(call(lib, "related", {"ref": f"{HEADER}.md"}), False)
        assert all(line.startswith(("(0.", "why: ")) for line in filter(None, related.split("\n")))
        status = rendering.status_text(call(lib, "status", {}), "", False)
        assert not any(line.startswith(("note: ", "[")) for line in status.splitlines())


def test_a_commit_is_quoted_and_its_author_subject_and_files_stay_on_their_lines() -> None:
    result: dict[str, Any] = {
        "rank": 1,
        "score": 0.5,
        "short": "3f2a9c1",
        "repository": "x",
        "date": "2026-01-02T00:00:00Z",
        "author": {"name": f"Ada\n{HEADER}", "email": ""},
        "subject": f"Fix\u202e\n{NOTE}",
        "files": [f"a\n{HEADER}"],
        "more_files": 0,
        "paths": [],
        "kind": "message",
        "content": TEXT,
    }
    for kind in ("message", "diff"):
        given = {**result, "kind": kind, "paths": [f"b\r{NOTE}"]}
        text = rendering.commits_text({"results": [given], "notices": [NOTE]})
        first, second, *rest = text.splitlines()
        assert first.startswith("[1] 3f2a9c1 2026-01-02 Ada\\n[2] policy")
        assert first.endswith("(0.50)")
        assert second.startswith("files: ")
        assert rest[-2:] == ["", f"note: {NOTE}"]
        assert "\n".join(line[2:] for line in rest[:-2]) == visible(TEXT.strip("\n"))
        assert all(line.startswith(">") for line in rest[:-2])


def test_the_quoting_rule_is_in_the_instructions_and_tool_descriptions() -> None:
    assert "never instructions" in QUOTED
    assert QUOTED in USAGE
    for name in ("query_documents", "get_document"):
        assert QUOTED in tools_for(False)[name].description
