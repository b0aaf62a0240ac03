"""A repository as an attacker ships it: documents, and a `.marklight` that tries to harm whoever searches it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.making import library, write

PAGES = {
    "guide.md": "# Guide\n\nThe lantern is lit at dusk.\n",
    "notes/tide.md": "# Tide\n\nThe tide turns at noon.\n",
}
INSIDE = (
    "library.db",
    "library.db-wal",
    "library.db-shm",
    "library.db-journal",
    "lock",
    "lock-journal",
    "scan.record",
    ".gitignore",
    "history",
    "vectors",
    "lexical",
    "lexical/*",
    "lexical/*/meta.json",
    "lexical/*/.managed.json",
    "lexical/*/marklight.json",
    "lexical/*/marklight.new",
    "lexical/*/.tantivy-writer.lock",
    "lexical/*/.tantivy-meta.lock",
)
"""Every place in the folder of an index that is ever written; `*` is the build of the lexical index."""


def make_index(folder: Path) -> Path:
    """Index a folder as another user on another machine would, and return the folder of the index."""
    write(folder, PAGES)
    here = os.environ["MARKLIGHT_DATA_DIR"]
    os.environ["MARKLIGHT_DATA_DIR"] = str(folder.parent / "data-of-the-attacker")
    try:
        with library(folder, index={"place": "folder"}) as lib:
            lib.index()
    finally:
        os.environ["MARKLIGHT_DATA_DIR"] = here
    return folder / ".marklight"


def link_to(path: Path, victim: Path) -> None:
    """Put a symbolic link at a path, whatever is there now."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(victim)


def place_in(index: Path, place: str) -> Path:
    """Return a place in the folder of an index, of which `*` is the build of the lexical index."""
    build = next((index / "lexical").iterdir()).name if "*" in place else ""
    return index / place.replace("*", build)


def list_for_deletion(index: Path, *victims: Path) -> None:
    """Name files outside of the lexical index among those that tantivy may delete."""
    build = place_in(index, "lexical/*")
    relative = [os.path.relpath(victim, build) for victim in victims]
    (build / ".managed.json").write_text(json.dumps([*map(str, victims), *relative]))


def recursive_view(store: Path) -> None:
    """Replace a table by a view that never ends."""
    connection = sqlite3.connect(store)
    connection.executescript(
        "ALTER TABLE manifest RENAME TO other; CREATE VIEW manifest AS WITH RECURSIVE"
        " forever(key, value) AS (SELECT 'a', 'b' UNION ALL SELECT key || 'x', value FROM forever)"
        " SELECT key, value FROM forever;"
    )
    connection.close()


def trigger(store: Path) -> None:
    """Let every commit destroy the documents."""
    connection = sqlite3.connect(store)
    connection.executescript(
        "CREATE TRIGGER harm AFTER UPDATE ON state BEGIN DELETE FROM documents; END;"
    )
    connection.close()


def journal_that_deletes(store: Path, victim: Path) -> None:
    """Put a hot rollback journal beside a database that names a file for deletion: the super-journal."""
    name = os.fsencode(victim)
    sector = 512
    header = bytes.fromhex("d9d505f920a163d7") + b"".join(
        number.to_bytes(4, "big") for number in (0, 1, 1, sector, 4096)
    )
    checksum = sum(name) & 0xFFFFFFFF
    page = (4096 // 4096 + 1).to_bytes(4, "big")
    tail = page + name + len(name).to_bytes(4, "big") + checksum.to_bytes(4, "big")
    store.with_name(f"{store.name}-journal").write_bytes(
        header.ljust(sector, b"\0") + tail + bytes.fromhex("d9d505f920a163d7")
    )


def marklight(
    folder: Path, *arguments: str, seconds: float = 60, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        [sys.executable, "-c", "from marklight.surfaces.cli import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, "MARKLIGHT_MODEL_NAME": "fake", **environ},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
