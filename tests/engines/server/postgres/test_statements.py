"""The shared SQL means the same on PostgreSQL: lists are one parameter, globs match as elsewhere."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from marklight.engines.metadata_filters import matches_any_glob
from marklight.engines.server.postgres.session import PostgresSession, translate
from marklight.model import DocumentId
from marklight.text.globs import has_too_many_wildcards

pieces = st.sampled_from(
    ["a", "b", "Z", ".md", "/", "-", "]", "[", "^", "\\", ".", "+", "(", "ä", "\n"]
)
wildcards = st.sampled_from(
    ["*", "**", "**/", "?", "[a-b]", "[!a]", "[^/b]", "[]", "[z-a]", "[a-b-c]", "[a\\]"]
)
paths = st.lists(pieces, min_size=1, max_size=8).map("".join)
globs = st.lists(st.one_of(pieces, wildcards), min_size=1, max_size=6).map("".join)


def test_placeholders_are_numbered_and_those_in_literals_are_not() -> None:
    statement = translate("SELECT '?' FROM a CROSS JOIN b ON b.x = ? WHERE instr(a.y, ?) > 0")
    assert statement.sql == "SELECT '?' FROM a JOIN b ON b.x = $1 WHERE strpos(a.y, $2) > 0"
    assert statement.parameters([1, "z"]) == [1, "z"]


def test_lists_keep_their_order(session: PostgresSession) -> None:
    ids = [DocumentId("z", "1"), DocumentId("a", "2")]
    assert session.all("SELECT * FROM texts(?) t", [["z", "a"]]) == [(0, "z"), (1, "a")]
    assert session.all("SELECT * FROM integers(?) t", [[2**62, -1]]) == [(0, 2**62), (1, -1)]
    assert session.all("SELECT * FROM document_ids(?) t", [ids]) == [(0, "z", "1"), (1, "a", "2")]
    assert session.all("SELECT value, count FROM counts(?) t", [[("z", 3)]]) == [("z", 3)]
    for function in ("texts", "integers", "document_ids", "counts"):
        assert session.all(f"SELECT * FROM {function}(?) t WHERE true", [[]]) == []


def test_texts_compare_by_code_point(session: PostgresSession) -> None:
    unsorted = ["ä", "a", "B", "\U0001f600", "\uffff", "b", "A"]
    rows = session.all("SELECT t.value FROM texts(?) t ORDER BY t.value", [unsorted])
    assert [value for (value,) in rows] == sorted(unsorted)


def test_a_sum_of_integers_is_an_integer(session: PostgresSession) -> None:
    total = session.value("SELECT sum(t.value) FROM integers(?) t", [[1, 2**40]])
    assert (total, type(total)) == (1 + 2**40, int)
    assert session.value("SELECT avg(t.value) FROM integers(?) t", [[1, 2]]) == 1.5


@settings(max_examples=300)
@given(path=paths, given_globs=st.lists(globs, min_size=1, max_size=2))
def test_globs_match_as_in_python(
    session: PostgresSession, path: str, given_globs: list[str]
) -> None:
    if any(map(has_too_many_wildcards, given_globs)):
        return
    matches = session.value("SELECT any_glob(t.value, ?) FROM texts(?) t", [given_globs, [path]])
    assert matches == matches_any_glob(path, given_globs)
