"""Translate the shared SQL of `engines/relational` into that of PostgreSQL, with the parameters that belong to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_LIST = "(SELECT ordinality - 1 AS key, {0} FROM unnest({1}) WITH ORDINALITY AS u({2}, ordinality))"
_TEXT = 'COLLATE "C"'
_MARK = re.compile(
    r"(?P<glob>any_glob\((?P<column>[\w.]+), \?\))"
    r"|(?P<list>texts|integers|document_ids|counts)\(\?\)"
    r"|(?P<cross>\bCROSS JOIN\b)|(?P<instr>\binstr\()|(?P<literal>'[^']*')|(?P<plain>\?)"
)
_LATERAL = re.compile(r"\bLATERAL \[([^\]]*)\]")
_STATEMENTS = 1024
"""Cached translations."""


class Statement(NamedTuple):
    """A statement of PostgreSQL, and how each value of the shared one becomes parameters of it."""

    sql: str
    splits: tuple[Callable[[Any], Sequence[Any]] | None, ...]
    """For each value the function that returns its parameters; None for one that stays as it is."""

    def parameters(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the parameters for these values."""
        if not any(self.splits):
            return values
        parameters: list[Any] = []
        for value, split in zip(values, self.splits, strict=True):
            if split is None:
                parameters.append(value)
            else:
                parameters.extend(split(value))
        return parameters


@lru_cache(maxsize=_STATEMENTS)
def translate(sql: str) -> Statement:
    """Translate a statement: number its placeholders and replace what only SQLite understands."""
    splits: list[Callable[[Any], Sequence[Any]] | None] = []
    count = 0

    def parameter() -> str:
        nonlocal count
        count += 1
        return f"${count}"

    def replace(match: re.Match[str]) -> str:
        if match["literal"]:
            return match[0]
        if match["cross"]:
            return "JOIN"
        if match["instr"]:
            return "strpos("
        if match["plain"]:
            splits.append(None)
            return parameter()
        if match["glob"]:
            splits.append(_split_globs)
            column = match["column"]
            return (
                f"({column} = ANY({parameter()}::text[]) OR {column} ~ ANY({parameter()}::text[]))"
            )
        splits.append(_SPLITS[match["list"]])
        return _table(match["list"], parameter)

    translated = _MARK.sub(replace, _LATERAL.sub(r"LATERAL (\1)", sql))
    return Statement(translated, tuple(splits))


def _table(function: str, parameter: Callable[[], str]) -> str:
    """Return the subquery for one of the table functions of the shared SQL."""
    if function == "texts":
        return _LIST.format(f"value {_TEXT} AS value", f"{parameter()}::text[]", "value")
    if function == "integers":
        return _LIST.format("value", f"{parameter()}::bigint[]", "value")
    arrays = f"{parameter()}::text[], {parameter()}"
    if function == "document_ids":
        columns = f"collection {_TEXT} AS collection, path {_TEXT} AS path"
        return _LIST.format(columns, f"{arrays}::text[]", "collection, path")
    return _LIST.format(f"value {_TEXT} AS value, count", f"{arrays}::bigint[]", "value, count")


def _split_list(value: Sequence[Any]) -> Sequence[Any]:
    return (list(value),)


def _split_pairs(value: Sequence[tuple[Any, Any]]) -> Sequence[Any]:
    return [first for first, _ in value], [second for _, second in value]


def _split_globs(globs: Sequence[str]) -> Sequence[Any]:
    from marklight.text.globs import posix_pattern

    return list(globs), [posix_pattern(glob) for glob in globs]


_SPLITS: dict[str, Callable[[Any], Sequence[Any]]] = {
    "texts": _split_list,
    "integers": _split_list,
    "document_ids": _split_pairs,
    "counts": _split_pairs,
}
