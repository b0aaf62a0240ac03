"""Which documents and passages may answer, found before anything is ranked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marklight.answer import Filters
from marklight.engines.embedded.records import stored
from marklight.engines.embedded.session import Session, json_list
from marklight.engines.metadata_filters import (
    AUTHOR,
    FILES,
    TAG,
    file_and_author_filters,
    normalize_tag,
    required_pairs,
    time_bounds,
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Rows that may answer, or with `but` all others; of documents, or of single passages."""

    column: str
    """`document` or `row`."""
    rows: list[int]
    but: bool = False

    @property
    def nothing(self) -> bool:
        return not self.rows and not self.but

    def condition(self, chunks: str) -> tuple[str, list[str]]:
        """True of the passages that may answer, with what is to be bound to it."""
        if self.but and not self.rows:
            return "true", []
        way = "NOT IN" if self.but else "IN"
        return f"{chunks}.{self.column} {way} (SELECT value FROM json_each(?))", [
            json_list(self.rows)
        ]


def which(may: Allowed | None) -> tuple[str, list[str]]:
    """The same of a passage `c`, also where everything may answer."""
    return may.condition("c") if may else ("true", [])


@stored
def allowed(session: Session, filters: Filters) -> Allowed | None:
    """What passes the filters on documents and languages; None where everything does."""
    filters = replace(filters, phrases=(), without=())
    if not filters:
        return None
    conditions, values = _conditions(filters)
    documents = f"SELECT d.row FROM documents d WHERE {' AND '.join(conditions) or 'true'}"
    if filters.languages:
        spoken = json_list(language.lower() for language in filters.languages)
        rows = session.all(
            "SELECT DISTINCT c.row FROM languages l JOIN chunks c ON c.row = l.chunk"
            " WHERE l.language IN (SELECT value FROM json_each(?))"
            f" AND c.document IN ({documents})",
            [spoken, *values],
        )
        return Allowed("row", [row for (row,) in rows])
    passing = {row for (row,) in session.all(documents, values)}
    if 2 * len(passing) <= session.value("SELECT documents FROM state"):
        return Allowed("document", sorted(passing))
    # The shorter list is the cheaper one to ask with.
    every = session.all("SELECT row FROM documents")
    return Allowed("document", [row for (row,) in every if row not in passing], but=True)


def _conditions(filters: Filters) -> tuple[list[str], list[str]]:
    conditions: list[str] = []
    values: list[str] = []

    def add(condition: str, *given: str) -> None:
        conditions.append(condition)
        values.extend(given)

    if filters.documents:
        add(
            "d.row IN (SELECT x.row FROM json_each(?) j CROSS JOIN documents x"
            " ON x.path = json_extract(j.value, '$[1]') AND x.collection = json_extract(j.value, '$[0]'))",
            json_list(filters.documents),
        )
    if filters.collections:
        add("d.collection IN (SELECT value FROM json_each(?))", json_list(filters.collections))
    if filters.within:
        part = "(d.collection = ? AND (? = '' OR substr(d.path, 1, length(?) + 1) = ? || '/'))"
        parts = " OR ".join([part] * len(filters.within))
        add(
            f"({parts})",
            *(each for owner, folder in filters.within for each in (owner, *[folder] * 3)),
        )
    if filters.paths:
        add("any_glob(d.path, ?)", json_list(filters.paths))
    if filters.exclude:
        add("NOT any_glob(d.path, ?)", json_list(filters.exclude))
    holds = "d.row IN (SELECT document FROM facts WHERE key = ? AND value"
    if filters.tags:
        tags = json_list(normalize_tag(tag) for tag in filters.tags)
        add(f"{holds} IN (SELECT value FROM json_each(?)))", TAG, tags)
    for key, value in required_pairs(filters):
        add(f"{holds} = ?)", key, value)
    files, authors = file_and_author_filters(filters)
    if files:
        # Each path is tried once, however many commits changed it: without the limit SQLite would
        # try it for each of them.
        add(
            "d.row IN (SELECT document FROM facts WHERE key = ? AND value IN (SELECT p.value FROM"
            " (SELECT DISTINCT value FROM facts WHERE key = ? LIMIT -1) p WHERE any_glob(p.value, ?)))",
            *(FILES, FILES, json_list(files)),
        )
    if authors:
        add(
            "d.row IN (SELECT document FROM facts WHERE key = ? AND value IN (SELECT p.value FROM"
            " (SELECT DISTINCT value FROM facts WHERE key = ? LIMIT -1) p JOIN json_each(?) j"
            " ON instr(p.value, j.value) > 0))",
            *(AUTHOR, AUTHOR, json_list(authors)),
        )
    begin, end = time_bounds(filters)
    if begin:
        add("d.moment >= ?", begin)
    if end:
        add("d.moment < ?", end)
    if filters.also:
        others, given = _conditions(filters.also)
        add(" AND ".join(others) or "true", *given)
    return conditions, values
