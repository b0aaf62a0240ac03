"""Read vectors by content digest from the database of another index, so that no text is embedded twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.engines.embedded.checksums import vector_checksum
from marklight.engines.embedded.session import check_schema, connect
from marklight.errors import StoreError
from marklight.private_files import is_plain_file

if TYPE_CHECKING:
    from marklight.model import Vector

WAIT_SECONDS = 1.0
"""Time limit for waiting while another process locks the database."""


def stored_vectors(database: Path, model: str, digests: Sequence[str]) -> dict[str, Vector]:
    """Return the vectors of texts by their digests; those that are missing or damaged are left out."""
    import numpy as np

    if not is_plain_file(database):
        return {}
    try:
        session = connect(database, wait_seconds=WAIT_SECONDS)
    except StoreError:
        return {}
    try:
        check_schema(session)
        key = str(session.value("SELECT library FROM state")).encode()
        rows = session.all(
            "SELECT v.digest, v.vector, v.checksum FROM json_each(?) d CROSS JOIN vectors v ON v.digest = d.value"
            " JOIN models m ON m.row = v.model AND m.name = ? AND length(v.vector) = 4 * m.dimension",
            [list(digests), model],
        )
    except StoreError:
        return {}
    finally:
        session.close()
    return {
        digest: np.frombuffer(vector, dtype="<f4")
        for digest, vector, checksum in rows
        if vector_checksum(key, digest, vector) == checksum
    }
