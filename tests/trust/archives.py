"""Build archives with right digests and any content, and import those that must be refused."""

from __future__ import annotations

import json
import random
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import marklight
from marklight.errors import MarklightError, StoreError, UsageError
from tests.making import index_of

Members = dict[str, bytes]
FILES = {
    f"{name}.md": f"# {name}\n\nAbout {name}, see [[one]].\n" for name in ("one", "two", "six")
}
NOISE = random.Random(7).randbytes(20_000).hex()
DOCUMENTS, KEYS, ROWS = "documents/000000.jsonl", "vectors/0/000000.json", "vectors/0/000000.f32"


def forged(path: Path, members: Members, /, **manifest: Any) -> Path:
    """Write an archive whose digests are right, whatever its content is."""
    values = {**json.loads(members["manifest.json"]), **manifest}
    content = {name: data for name, data in members.items() if name != "manifest.json"}
    if "members" not in manifest:
        values["members"] = [
            (name, len(data), sha256(data).hexdigest()) for name, data in content.items()
        ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**content, "manifest.json": json.dumps(values).encode()}.items():
            archive.writestr(name, data)
    return path


def refuse(target: marklight.Library, path: Path) -> str:
    """Import an archive that must be refused before anything is written; return the reason."""
    with pytest.raises(MarklightError) as raised:
        marklight.import_index(path, target)
    assert isinstance(raised.value, StoreError | UsageError)
    assert not index_of(target.place.folder).exists()
    message = str(raised.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message
