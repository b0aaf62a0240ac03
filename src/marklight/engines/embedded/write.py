"""Apply a batch to the tables of SQLite: as every relational database, with checksums and tombstones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from marklight.engines.embedded.checksums import passage_checksum, store_checksums
from marklight.engines.embedded.session import SqliteSession
from marklight.engines.relational.write import (
    ChangedRows,
    replace_documents,
    replace_failures,
    touch_documents,
)
from marklight.model import Batch, Document


def replace(session: SqliteSession, batch: Batch) -> ChangedRows:
    """Delete and insert documents; deleted passages are tombstones until the lexical index drops them."""

    def checksum(document: Document, columns: Sequence[Any]) -> int:
        return passage_checksum(session.key, document.digest, document.recipe, columns)

    change = replace_documents(session, batch, checksum)
    now = time.time()
    session.insert("tombstones", "chunk, since", ((row, now) for row in change.deleted_chunks))
    store_checksums(session, [item.document for item in change.inserted])
    touch_documents(session, batch.touched)
    replace_failures(session, batch)
    return change
