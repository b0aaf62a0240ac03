"""Forged files of SQLite and tantivy, made without any secret of the user: what a `git pull` may bring into an index."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import tantivy

from marklight.engines.embedded import stored_rows
from marklight.engines.embedded.lexical_index import schema
from marklight.engines.embedded.lexical_writer import stored_passages
from marklight.engines.embedded.session import SqliteSession
from marklight.engines.embedded.stored_rows import pack, unpack

PAGE = 4096
STATE_PAGE = 2
"""The root page of the first table, `state`, which holds the id of the index: the secret that a forger lacks."""


def pages_of(store: Path) -> dict[int, bytes]:
    """Return the pages of a database by their numbers."""
    data = store.read_bytes()
    return {at // PAGE + 1: data[at : at + PAGE] for at in range(0, len(data), PAGE)}


def write_log(path: Path, pages: dict[int, bytes], total: int) -> None:
    """Write a write-ahead log with valid checksums that replaces these pages of whatever database is beside it."""
    salts = struct.pack(">II", 1, 2)
    head = struct.pack(">IIII", 0x377F0683, 3007000, PAGE, 0) + salts
    sums = _sums(head, (0, 0))
    out = [head, struct.pack(">II", *sums)]
    for number, page in sorted(pages.items()):
        frame = struct.pack(">II", number, total if number == max(pages) else 0)
        sums = _sums(page, _sums(frame, sums))
        out += [frame, salts, struct.pack(">II", *sums), page]
    path.write_bytes(b"".join(out))


def _sums(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f">{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


def change_text(store: Path, change: Callable[[str], str]) -> None:
    """Change the text of all passages and documents, with checksums that fit."""
    connection = sqlite3.connect(store, isolation_level=None)
    (id,) = connection.execute("SELECT library FROM state").fetchone()
    key = id.encode()
    names = [name.strip().removeprefix("c.") for name in stored_rows._PASSAGE_COLUMNS.split(",")]
    at = names.index("PASSAGE_TEXT")
    session = SqliteSession(store, connection)
    session.key = key
    for row, text_digest, recipe, *columns in session.all(
        f"SELECT c.row, d.digest, d.recipe, {stored_rows._PASSAGE_COLUMNS} FROM chunks c JOIN documents d ON d.row = c.document"
    ):
        columns[at] = change(columns[at])
        total = stored_rows.passage_checksum(key, text_digest, recipe, columns)
        connection.execute(
            "UPDATE chunks SET text = ?, checksum = ? WHERE row = ?", [columns[at], total, row]
        )
    for row, text in connection.execute("SELECT document, text FROM contents").fetchall():
        packed = pack(change(unpack(text)))
        connection.execute("UPDATE contents SET text = ? WHERE document = ?", [packed, row])
    rows = [row for (row,) in connection.execute("SELECT row FROM documents")]
    stored_rows.store_checksums(session, rows)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def endless_schema(store: Path) -> dict[int, bytes]:
    """Return pages after which reading the schema takes years: inner pages that all lead to one leaf."""
    connection = sqlite3.connect(store)
    name = "sqlite_autoindex_documents_1"
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = ?", [name]
    ).fetchone()
    connection.close()
    pages = pages_of(store)
    last, first = len(pages), bytearray(pages[1])
    (right,) = struct.unpack(">I", first[108:112])
    new = {last + 1: _leaf(13, [_sized(_record("index", name, "documents", root, None), 9)] * 40)}
    for level in range(last + 1, last + 7):
        new[level + 1] = _inner(5, [level] * 300, level, _varint(9))
    new[last + 8] = _inner(5, [right], last + 7, _varint(9))
    first[108:112] = first[28:32] = struct.pack(">I", last + 8)
    return {**new, 1: bytes(first)}


def _varint(number: int) -> bytes:
    out = [number & 0x7F]
    while number := number >> 7:
        out.insert(0, number & 0x7F | 0x80)
    return bytes(out)


def _record(*values: str | int | None) -> bytes:
    head = body = b""
    for value in values:
        if value is None:
            head += _varint(0)
        elif isinstance(value, int):
            head, body = head + _varint(4), body + struct.pack(">i", value)
        else:
            head, body = head + _varint(13 + 2 * len(value)), body + value.encode()
    return _varint(len(head) + 1) + head + body


def _sized(payload: bytes, row: int | None = None) -> bytes:
    return _varint(len(payload)) + (b"" if row is None else _varint(row)) + payload


def _leaf(kind: int, cells: list[bytes]) -> bytes:
    return _page(struct.pack(">BHHHB", kind, 0, len(cells), PAGE - sum(map(len, cells)), 0), cells)


def _inner(kind: int, children: list[int], right: int, key: bytes) -> bytes:
    cells = [struct.pack(">I", child) + key for child in children]
    start = PAGE - sum(map(len, cells))
    return _page(struct.pack(">BHHHBI", kind, 0, len(cells), start, 0, right), cells)


def _page(head: bytes, cells: list[bytes]) -> bytes:
    at, places = PAGE, b""
    for cell in cells:
        at -= len(cell)
        places += struct.pack(">H", at)
    front = head + places
    return front + b"\0" * (at - len(front)) + b"".join(reversed(cells))


def exchanged_words(store: Path, folder: Path) -> None:
    """Build a lexical index with the right rows, in which two passages have each other's words."""
    connection = sqlite3.connect(store, isolation_level=None)
    one, two = SqliteSession(store, connection).all(
        "SELECT c.row, c.title, c.headings, PASSAGE_TEXT, c.code FROM chunks c"
    )
    for this, other in ((one, two), (two, one)):
        connection.execute(
            "UPDATE chunks SET title = ?, headings = ?, text = ?, code = ? WHERE row = ?",
            [*other[1:], this[0]],
        )
    folder.mkdir()
    writer = tantivy.Index(schema(), path=str(folder)).writer(heap_size=64_000_000, num_threads=1)
    for passage in stored_passages(SqliteSession(store, connection)):
        writer.add_document(passage)
    writer.commit()
    writer.wait_merging_threads()
    connection.close()
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "opstamp": 10**6}))
    for name in os.listdir(folder):
        if name.endswith(".lock"):
            (folder / name).unlink()
