"""The sentence of a passage that answers a query, and the part that is shown around it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marklight.model import Chunk, DocumentId, Kind
from marklight.query import Query
from marklight.text.snippets import SNIPPET_CHARACTERS, Snippet, excerpt, snippet


def passage(text: str, kind: Kind = Kind.PROSE) -> Chunk:
    return Chunk("1", DocumentId("notes", "a.md"), 0, "A", (), "", (1, 1), kind, text, "", "digest")


def shown(text: str, query: str, kind: Kind = Kind.PROSE) -> Snippet:
    return snippet(passage(text, kind), Query(query).terms)


def answering(text: str, query: str, kind: Kind = Kind.PROSE) -> str:
    part = shown(text, query, kind)
    return part.text[slice(*part.sentence)]


@given(st.text(alphabet="abc xyz.\n", max_size=2_000))
def test_a_snippet_is_short_and_a_part_of_the_text(text: str) -> None:
    part = shown(text, "xyz")
    assert len(part.text) <= SNIPPET_CHARACTERS + 4
    first, last = part.sentence
    assert 0 <= first <= last <= len(part.text)
    assert not last or "xyz" in part.text[first:last]


def test_the_sentence_with_the_most_query_terms_answers() -> None:
    text = "Words about nothing. " * 40 + "The heron nests in reeds. It is grey. " + "More. " * 100
    part = shown(text, "heron nest")
    assert (part.text[:2], part.text[-2:]) == ("… ", " …")
    assert answering(text, "heron nest") == "The heron nests in reeds."


def test_one_sentence_with_all_terms_is_shown_rather_than_many_with_one() -> None:
    scattered = "The heron is grey. Others nest. " * 20
    text = f"{scattered}{'Words about nothing. ' * 30}The heron nests in reeds. {'More. ' * 100}"
    assert "The heron nests in reeds." in shown(text, "heron nests").text


def test_of_sentences_with_equally_many_terms_the_longest_answers() -> None:
    assert answering("- Heron\n- A heron nests in reeds.", "heron") == "• A heron nests in reeds."


def test_the_number_of_a_list_item_belongs_to_it() -> None:
    assert answering("1. Grind the beans.\n2. Wait.", "beans") == "1. Grind the beans."


def test_a_list_that_fits_is_shown_whole_with_the_line_above_it() -> None:
    items = (
        "".join(f"- Bird {number} nests\n" for number in range(6))
        + "- The heron nests too\n- End\n"
    )
    text = f"{'Words about nothing. ' * 30}\n\nThese nest:\n\n{items}\n{'More. ' * 100}"
    part = shown(text, "heron nests").text
    assert "These nest:\n• Bird 0 nests\n" in part
    assert "• The heron nests too\n• End\n" in part


def test_a_text_without_query_terms_has_no_sentence_that_answers() -> None:
    assert shown("The heron nests.", "zebra") == Snippet("The heron nests.", (0, 0))


def test_a_part_of_a_table_begins_with_the_header_row() -> None:
    rows = "\n".join(f"| plan {number} | ${number} |" for number in range(60))
    table = f"| Plan | Price |\n|---|---|\n{rows}"
    assert shown(table, "57", Kind.TABLE).text.startswith("Plan     Price\n… plan ")
    assert answering(table, "57", Kind.TABLE) == "plan 57  $57"


def test_all_rows_are_shown_if_the_limit_allows() -> None:
    found = excerpt(passage("- One\n- Heron\n- Three"), Query("heron").terms, 99)
    assert (found.before, found.text) == (False, "• One\n• Heron\n• Three")
