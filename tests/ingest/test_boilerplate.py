"""Boilerplate: detected by the documents that share it, at any time, and the same as in an index built at once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marklight
from marklight.ingest.boilerplate import normalized, text_blocks
from marklight.model import Chunk
from marklight.text.markdown import comment_spans
from tests.ingest.reading import entry
from tests.making import library, write

FOOTER = "# This note on GitHub\n\n[Edit this note](https://example.com/{name}) | [Copy it](raw/{name})\n"
WORDS = ["apple", "pear", "plum", "quince", "cherry", "fig", "grape", "lemon", "mango", "olive"]


def note(name: str, footer: str = FOOTER) -> str:
    return f"# {name}\n\nAll about the {name}, which grows here.\n\n{footer.format(name=name)}"


def notes(count: int) -> dict[str, str]:
    return {f"{name}.md": note(name) for name in WORDS[:count]}


def opened(folder: Path, **chunk: Any) -> marklight.Library:
    return library(folder, chunk={"boilerplate": 4, "min_chars": 0, **chunk})


def stored(lib: marklight.Library) -> dict[str, list[Chunk]]:
    """Return the passages of every document."""
    with lib.engine.snapshot() as snapshot:
        return {
            id.path: snapshot.documents.chunks_of(id) for id in sorted(snapshot.documents.files())
        }


def hidden(lib: marklight.Library) -> list[str]:
    """Return the documents with a passage of nothing but boilerplate."""
    return [path for path, chunks in stored(lib).items() if any(c.is_boilerplate for c in chunks)]


def test_a_footer_is_boilerplate_from_a_number_of_documents_on(tmp_path: Path) -> None:
    lib = opened(write(tmp_path, notes(3)))
    lib.index()
    assert hidden(lib) == []
    write(tmp_path, {"quince.md": note("quince")})
    report = lib.index()
    # The others are chunked again with the fourth, and did not change.
    assert hidden(lib) == ["apple.md", "pear.md", "plum.md", "quince.md"]
    assert [id.path for id in (*report.added, *report.changed)] == ["quince.md"]
    (tmp_path / "pear.md").unlink()
    lib.index()
    assert hidden(lib) == []


def test_a_changed_file_can_make_a_block_boilerplate_and_undo_it(tmp_path: Path) -> None:
    lib = opened(write(tmp_path, {**notes(3), "fig.md": note("fig", "")}))
    lib.index()
    write(tmp_path, {"fig.md": note("fig")})
    lib.index()
    assert len(hidden(lib)) == 4
    write(tmp_path, {"fig.md": note("fig", "Nothing else.")})
    lib.index()
    assert hidden(lib) == []


def test_boilerplate_is_found_by_quoting_it_only(tmp_path: Path) -> None:
    lib = opened(write(tmp_path, notes(6)))
    lib.index()
    for query in ("plum", "edit this note", "this note on GitHub", "copy the plum"):
        hits = lib.search(query, min_confidence=0, limit=10).hits
        assert not any(hit.chunk.is_boilerplate for hit in hits), query
    quoted = lib.search('"edit this note"', limit=10).hits
    assert len({hit.chunk.path for hit in quoted}) == 6
    assert all("Edit this note" in hit.chunk.text for hit in quoted)
    assert lib.search("plum").hits[0].chunk.path == "plum.md"


def test_boilerplate_beside_other_text_is_not_ranked_and_not_embedded(tmp_path: Path) -> None:
    shared = "Please fill in every field of this form before you send it."
    files = {f"{name}.md": f"# {name}\n\n{shared}\n\nThe {name} is ripe.\n" for name in WORDS[:5]}
    lib = opened(write(tmp_path, files))
    lib.index()
    (chunk,) = stored(lib)["plum.md"]
    assert chunk.text == f"{shared}\n\nThe plum is ripe."
    assert chunk.own_text == "The plum is ripe."
    assert lib.search("fill in every field", mode="keyword", min_confidence=0).hits == ()
    assert lib.search('"fill in every field"', mode="keyword").hits


def test_headings_of_own_text_stay(tmp_path: Path) -> None:
    files = {
        f"{name}.md": f"# {name}\n\nIntroduction to the {name}, a fruit.\n\n"
        f"## Harvest\n\nThe {name} is picked by hand in the {at}th month of the year.\n\n## Pests\n\nNone.\n"
        for at, name in enumerate(WORDS[:5])
    }
    lib = opened(write(tmp_path, files))
    lib.index()
    chunks = stored(lib)["plum.md"]
    assert [(c.headings[-1], c.is_boilerplate) for c in chunks] == [
        ("plum", False),
        ("Harvest", False),
        ("Pests", True),
    ]


def test_a_small_footer_that_is_merged_with_a_small_note_is_no_heading_of_it(
    tmp_path: Path,
) -> None:
    lib = opened(write(tmp_path, notes(5)), min_chars=200)
    lib.index()
    (chunk,) = stored(lib)["plum.md"]
    assert chunk.merged == ("plum",)
    assert chunk.own_text.strip() == "# plum\n\nAll about the plum, which grows here."


def test_copies_of_one_document_are_no_boilerplate(tmp_path: Path) -> None:
    lib = opened(write(tmp_path, {f"v{at}/guide.md": note("guide") for at in range(9)}))
    lib.index()
    assert hidden(lib) == []


def test_a_document_of_nothing_but_boilerplate_is_found_by_its_title(tmp_path: Path) -> None:
    text = "## Tasks\n\n- [ ] Write the report\n\n## Notes\n\nTo be written.\n"
    lib = opened(write(tmp_path, {f"{name}.md": text for name in WORDS[:5]}))
    lib.index()
    assert lib.search("plum").hits[0].chunk.path == "plum.md"


def test_shared_text_below_the_title_is_boilerplate(tmp_path: Path) -> None:
    files = {
        f"{name}.md": f"# {name}\n\n> [!abstract] Why\n\n## Log\n\nThe {name} was planted.\n"
        for name in WORDS[:5]
    }
    lib = opened(write(tmp_path, files))
    lib.index()
    assert [chunk.is_boilerplate for chunk in stored(lib)["plum.md"]] == [True, False]
    assert lib.search("plum").hits[0].chunk.text == "The plum was planted."


def test_detection_can_be_switched_off(tmp_path: Path) -> None:
    lib = opened(write(tmp_path, notes(6)), boilerplate=0)
    lib.index()
    assert hidden(lib) == []
    with lib.engine.snapshot() as snapshot:
        assert snapshot.blocks.count() == 0


def test_sections_with_skipped_headings_are_not_indexed(tmp_path: Path) -> None:
    text = "# A\n\nFirst.\n\n## Edit THIS page\n\nsecret\n\n### Below\n\nhidden\n\n## C\n\nLast.\n"
    lib = opened(write(tmp_path, {"a.md": text}), skip_headings=["edit this page"])
    lib.index()
    assert [chunk.text for chunk in stored(lib)["a.md"]] == ["First.", "Last."]
    assert lib.search('"secret"').hits == ()


def test_digests_ignore_case_white_space_check_marks_and_link_targets() -> None:
    one = normalized("- [x] **Edit**  this [page](a.md)!")
    assert one == normalized("- [ ] **edit** THIS\n [page](b.md)!")
    assert one != normalized("- [ ] **edit** THIS [book](b.md)!")
    assert normalized("---") == ""


def test_blocks_are_paragraphs_items_rows_headings_and_fences() -> None:
    text = "a\nb\n\n- c\n  d\n- e\n| f |\n| g |\n# H\nh\n\n```\ni\n\n# j\n```\nk"
    made = text_blocks(text, 0, "docs")
    assert [text[each.start : each.end].strip() for each in made] == [
        *("a\nb", "- c\n  d", "- e", "| f |", "| g |", "# H", "h", "```\ni\n\n# j\n```", "k"),
    ]
    assert [each.start for each in made if each.is_heading] == [text.index("# H")]
    other = text_blocks(text, 0, "other")
    assert not {each.digest for each in made} & {each.digest for each in other}


@given(st.text("ab \n#-|`~[]()", max_size=60), st.integers(0, 10))
def test_blocks_cover_the_text_without_gaps(text: str, first: int) -> None:
    made = text_blocks(text, min(first, len(text)), "docs")
    assert all(one.end == other.start for one, other in pairwise(made))
    if made:
        assert not text[min(first, len(text)) : made[0].start].strip()
        assert made[-1].end == len(text)


COMMENTS = {
    "%% one %% text": " text",
    "text %%one\ntwo%% more": "text  more",
    "%%\n# One\n\ntwo\n%%\n\nrest": "\n\nrest",
    "a <!-- one\n\ntwo --> b": "a  b",
    "`%% code %%` and `<!-- x -->`": "`%% code %%` and `<!-- x -->`",
    "```\n%% code %%\n<!-- x -->\n```\n": "```\n%% code %%\n<!-- x -->\n```\n",
    "%% a node\n\ntext\n```\n%% code %%\n```\n": "%% a node\n\ntext\n```\n%% code %%\n```\n",
    "%%\n```\n%% code %%\n```\n\nmore\n%%\nrest": "\nrest",
    "100%% sure": "100%% sure",
    "a%% b\n\nc%% d": "a%% b\n\nc%% d",
    "%%timeit\nx\n\n%%bash\ny": "%%timeit\nx\n\n%%bash\ny",
    "<!-- never closed": "<!-- never closed",
    "{% if x %}\ntext {% data y.z -%} more\n{%- endif %}": "\ntext  more\n",
    "{# note #} # Title {#anchor}": " # Title {#anchor}",
    "\nimport Tabs from '@theme/Tabs';\nimport \"a.css\"\n\ntext": "\n\n\n\ntext",
    "\nimport goods from 'China' and sell them": "\nimport goods from 'China' and sell them",
    "Use {% data variables.product.prodname_copilot %} here": "Use prodname_copilot here",
    "{%- data variables.name -%}\n": "name\n",
    "See [AUTOTITLE](/a/b) or [AUTOTITLE].": "See [](/a/b) or [AUTOTITLE].",
    'Before.\n\n--8<-- "a.md"\n\nAfter.': "Before.\n\n\n\nAfter.",
    "{{% notice %}} {% never closed": "{{% notice %}} {% never closed",
    "`{% code %}`\n```\nimport a from 'b'\n```\n": "`{% code %}`\n```\nimport a from 'b'\n```\n",
}


@pytest.mark.parametrize("text", COMMENTS)
def test_comments_and_template_directives_are_found_outside_of_code_if_they_are_closed(
    text: str,
) -> None:
    left = text
    for start, end in reversed(comment_spans(text)):
        left = left[:start] + left[end:]
    assert left == COMMENTS[text]


def test_comments_are_no_part_of_passages(tmp_path: Path) -> None:
    text = (
        "# A\n\nBefore.\n\n<!-- # No\n\nheading -->\n\nAfter %% hidden %% that.\n\n%%\n## No\n%%\n"
    )
    made = entry(text)
    assert [chunk.text for chunk in made.chunks] == ["Before.\n\nAfter  that."]
    assert [heading.text for heading in made.document.outline] == ["A"]
    assert made.document.text == text
    lib = opened(write(tmp_path, {"a.md": text}))
    assert lib.search('"hidden"').hits == ()


def test_a_document_of_nothing_but_a_comment_has_its_title() -> None:
    (chunk,) = entry("<!-- nothing -->\n", path="plum.md").chunks
    assert chunk.text == "plum"


steps = st.lists(
    st.tuples(st.sampled_from(WORDS[:6]), st.sampled_from(["", "a", "ab", "abc", "gone"])),
    min_size=1,
    max_size=12,
)
PARTS = {"a": "Ask the team.\n\n", "b": "- [ ] Done\n\n", "c": "## Notes\n\nNothing yet.\n\n"}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps, st.integers(1, 3))
def test_an_updated_index_equals_one_built_at_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("notes")
    lib = library(folder, chunk={"boilerplate": 3})
    for number, (name, parts) in enumerate(steps):
        path = folder / f"{name}.md"
        if parts == "gone":
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"Text of {name}.\n\n" + "".join(PARTS[part] for part in parts))
        if number % at_once == 0:
            lib.index()
    lib.index()
    other = f"file:{tmp_path_factory.mktemp('fresh')}"
    fresh = library(folder, engine=other, chunk={"boilerplate": 3})
    fresh.index()
    assert stored(lib) == stored(fresh)
