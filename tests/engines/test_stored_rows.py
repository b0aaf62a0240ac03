"""Packed text: documents in deflated blocks, passages as places in them."""

from __future__ import annotations

import sqlite3
import struct
from dataclasses import replace
from io import BytesIO
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.engines.embedded import stored_rows
from marklight.engines.embedded.stored_rows import (
    BLOCK_CHARS,
    pack,
    pack_passage,
    unpack,
    unpack_passage,
)
from marklight.text.lines import DocumentLines
from tests.contracts.builders import entry

TEXT = "".join(f"line {number} — 日本\n" for number in range(2000))


@given(st.text(max_size=50), st.integers(0, 3 * BLOCK_CHARS), st.integers(0, 2 * BLOCK_CHARS))
def test_any_part_of_a_text_is_read_back(end: str, start: int, length: int) -> None:
    text = TEXT[: 2 * BLOCK_CHARS] + end
    packed = pack(text)
    assert unpack(packed) == text
    if start + length <= len(text):
        place = struct.pack("<II", start, length)
        assert unpack_passage(place, BytesIO(packed)) == text[start : start + length]


def test_a_passage_is_stored_as_its_place_or_as_its_text() -> None:
    lines = DocumentLines(TEXT)
    chunk = replace(entry("a.md", "line 700 — 日本\nline 701").chunks[0], lines=(701, 702))
    stored = pack_passage(chunk, lines)
    assert isinstance(stored, bytes)
    assert unpack_passage(stored, BytesIO(pack(TEXT))) == chunk.text
    other = replace(chunk, text="a text without its indentation")
    assert pack_passage(other, lines) == other.text


@pytest.mark.parametrize("damage", [b"", b"\xff" * 20, pack(TEXT)[:200], pack(TEXT)[:-9]])
def test_a_damaged_text_is_empty(damage: bytes) -> None:
    assert unpack(damage) == ""
    assert unpack_passage(struct.pack("<II", 3, len(TEXT) - 3), BytesIO(damage)) == ""
    assert unpack_passage(b"\0" * 7, BytesIO(pack(TEXT))) == ""


def test_the_passages_of_a_large_document_are_read_from_one_copy_of_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[bool] = []
    unpack_passage = stored_rows.unpack_passage

    def counted(span: bytes, packed: BinaryIO | sqlite3.Blob) -> str:
        opened.append(isinstance(packed, sqlite3.Blob))
        return unpack_passage(span, packed)

    monkeypatch.setattr(stored_rows, "unpack_passage", counted)
    monkeypatch.setattr(stored_rows, "LARGE_BYTES", 1_000)
    connection = sqlite3.connect(":memory:")
    forget = stored_rows.register(connection)
    connection.execute("CREATE TABLE contents (document INTEGER PRIMARY KEY, text)")
    texts = {1: TEXT, 2: TEXT[::-1], 3: "small"}
    connection.executemany(
        "INSERT INTO contents VALUES (?, ?)", [(row, pack(text)) for row, text in texts.items()]
    )
    for document in (1, 1, 1, 1, 2, 2, 1, 3, 3, 3):
        query = "SELECT passage_text(?, ?)"
        (read,) = connection.execute(query, [struct.pack("<II", 2, 3), document]).fetchone()
        assert read == texts[document][2:5]
    assert opened == [True, True, False, False, True, True, True, True, True, True]
    connection.execute("UPDATE contents SET text = ? WHERE document = 2", [pack("other")])
    forget()
    assert connection.execute(query, [struct.pack("<II", 0, 5), 2]).fetchone() == ("other",)
    connection.close()


def test_a_passage_is_read_without_the_ends_of_the_blocks_before_it() -> None:
    packed = pack("a" * BLOCK_CHARS * 1_000)
    lengths: list[int] = []

    class Counted(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            lengths.append(size or 0)
            return super().read(size)

    place = struct.pack("<II", 998 * BLOCK_CHARS, 5)
    assert unpack_passage(place, Counted(packed)) == "aaaaa"
    assert sum(lengths) < 100
