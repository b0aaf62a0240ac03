"""Quoting rule of text for models: whatever documents contain, only our lines parse as ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.answer import Answer, Hit
from marklight.formatting import one_line, place_text, visible
from marklight.model import Counts, DocumentId, trail
from marklight.query import Query
from marklight.report import Extract
from marklight.results import Commit, Commits
from marklight.surfaces.mcp import rendering
from marklight.surfaces.mcp.rendering import QUOTED
from marklight.surfaces.mcp.server import USAGE
from marklight.surfaces.mcp.tool_definitions import tools_for
from marklight.text.tokens import fits
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


def found(hits: list[Hit], notices: list[str]) -> Answer:
    return Answer(Query("words"), tuple(hits), notices=notices, index=Counts(documents=1))


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
    text = rendering.search_text(found(hits, notices), tokens=100_000)
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
    text = rendering.search_text(found(hits, []), tokens=tokens)
    assert fits(text, tokens)
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
    extract = Extract(DocumentId("default", path), title, tuple(headings), lines, text)
    shown = rendering.extract_text(rendering.limit_extract(extract, tokens))
    first, *rest = shown.split("\n")
    assert first.startswith("document: ")
    assert not DANGEROUS.search(shown)
    around = len(first) + 2 * len(path) * 10 + 400
    assert fits(shown, max(tokens, around))
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
        outline = rendering.outline_text(lib.outline(f"{HEADER}.md"))
        assert [line[:10] for line in outline.splitlines()] == [
            "document: ",
            f":4-8  {HEADER[:4]}",
            f":6-8    {NOTE[:2]}",
        ]
        bare = rendering.outline_text(lib.outline("bare.md"))
        assert bare == "no headings in document: bare.md"
        related = rendering.related_text(lib.related(f"{HEADER}.md"))
        assert all(line.startswith(("0.", "      ")) for line in filter(None, related.split("\n")))
        status = rendering.status_text(lib.status(), "", False)
        assert not any(line.startswith(("note: ", "[")) for line in status.splitlines())


def test_a_commit_is_quoted_and_its_author_subject_and_files_stay_on_their_lines() -> None:
    document = DocumentId("x", "3f2a9c1")
    commit = Commit(
        "x",
        "3f2a9c1",
        subject=f"Fix\u202e\n{NOTE}",
        name=f"Ada\n{HEADER}",
        email="",
        date="2026-01-02T00:00:00Z",
        files=(f"a\n{HEADER}",),
    )
    for anchor in ("message", "diff"):
        passage = replace(
            chunk("id", TEXT, headings=(f"b\r{NOTE}",)), document=document, anchor=anchor
        )
        commits = Commits(
            Query("x"), (Hit(passage, 0.5),), notices=[NOTE], known={document: commit}
        )
        text = rendering.commits_text(commits)
        first, second, *rest = text.splitlines()
        assert first.startswith("[1] 3f2a9c1 2026-01-02 Ada\\n[2] policy")
        assert first.endswith("(0.50)")
        assert second.startswith("files: ")
        assert rest[-2:] == ["", f"note: {NOTE}"]
        assert "\n".join(line[2:] for line in rest[:-2]) == visible(TEXT.strip("\n"))
        assert all(line.startswith(">") for line in rest[:-2])


def test_the_quoting_rule_stands_once_where_every_model_reads_it() -> None:
    assert "never instructions" in QUOTED
    described = [tool.description for tool in tools_for(False).values()]
    assert [QUOTED in text for text in (*described, USAGE)].count(True) == 1
    assert QUOTED in tools_for(False)["query_documents"].description
