"""SQL that SQLite and PostgreSQL share: documents, filters, links, vocabulary counts, status, and applying a batch.

The package writes each statement once. A session turns it into the SQL of its database by a few replacements. Rules:

- Parameters are `?`, unnumbered. A parameter is a text, an integer, a float, bytes, None, or a `list`, which is one parameter.
- Lists are read by table functions, always with an alias: `texts(?) t` and `integers(?) t` with the columns `key` and `value`,
  `document_ids(?) t` with `key`, `collection` and `path`, and `counts(?) t` with `value` and `count`. `key` is the position, from 0.
- `CROSS JOIN b ON …` fixes the join order in SQLite: the table on the left is the outer loop. It means `JOIN b ON …`.
- `CROSS JOIN LATERAL [SELECT … AS value …] n ON true` joins each row with the integers of a query that refers to it, mostly with a LIMIT.
- `any_glob(path, ?)` is true if one of a list of globs matches, as `metadata_filters.matches_any_glob` defines it.
- `instr(text, part) > 0` is true if a text contains another.
- Upserts are `ON CONFLICT (…) DO UPDATE` or `DO NOTHING`; existing columns are qualified by the table, new ones by `excluded`.
- Texts compare by code point: `COLLATE "C"` in PostgreSQL, the default in SQLite.
- A subquery in FROM has an alias, and no query depends on the type of a boolean or on `rowid`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class SqlSession(Protocol):
    """Statements within one transaction of one connection, or of several that share a snapshot.

    Errors of the database are raised as `StoreError`. Methods may be called from several threads.
    """

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return all rows of a query as tuples."""

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Return the first row of a query; None where there is none."""

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row; None where there is none."""

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of a query without holding all of them in memory; other statements may run meanwhile."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; return the number of rows that it changed."""

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once for each row of values, in order."""

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows that conflict with none; `columns` is a list separated by commas.

        A missing column `row` is numbered in ascending order of the rows.
        """

    def next_rows(self, table: str, count: int) -> Sequence[int]:
        """Reserve row numbers for a table, ascending, above all that it ever had in this transaction's view.

        They may have gaps where several transactions write at once, and are never given twice.
        """
