"""Packed text: documents in deflated blocks, passages as places in them."""

from __future__ import annotations

import struct
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
