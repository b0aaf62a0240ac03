"""The tree of nodes of documents: document, sections, paragraphs, list items, code and tables, one row each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from marklight.engines.postgres.indexes import IndexedEntry
from marklight.engines.postgres.session import PostgresSession
from marklight.engines.postgres.text_codec import encode


def add(session: PostgresSession, inserted: Iterable[IndexedEntry]) -> None:
    """Insert the nodes of new documents."""
    session.insert(
        "nodes",
        "document, path, parent, position, kind, headings, first_line, last_line, metadata",
        (
            (
                item.document,
                node.path,
                node.parent or None,
                node.position,
                str(node.kind),
                list(node.headings),
                *node.lines,
                _encode_json(node.metadata),
            )
            for item in inserted
            for node in item.entry.nodes
        ),
    )


def _encode_json(value: Any) -> str:
    """Encode as JSON without characters that PostgreSQL cannot store; they are escaped as in text columns."""
    return json.dumps(_escaped(value), allow_nan=False)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return encode(value)
    if isinstance(value, dict):
        return {encode(str(key)): _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(inner) for inner in value]
    return value
