"""A library of format 2, as Marklight left it when that was current."""

from __future__ import annotations

import sqlite3
from pathlib import Path

MODEL = "fake-64"
DUMP = Path(__file__).with_name("format-2.sql")


def lay_down(folder: Path) -> Path:
    """Its store alone: words and vectors are derived from it."""
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "library.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(DUMP.read_text(encoding="utf-8"))
    connection.close()
    return folder


def format_of(folder: Path) -> int:
    connection = sqlite3.connect(folder / "library.db")
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
