"""Any Python string can be stored: the escapes keep equality, prefixes and order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.engines.server.postgres.connections import decode, encode
from marklight.engines.server.postgres.session import PostgresSession

ODD = "\x00\x01\x02\ud7ff\ud800\udbff\udc00\udfff\ue000\ue001\uffff\U00010000a"
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=())), max_size=6)


@given(texts)
def test_an_encoded_text_is_decoded_to_itself(text: str) -> None:
    encoded = encode(text)
    assert decode(encoded) == text
    assert "\x00" not in encoded
    encoded.encode()  # no lone surrogate


@given(texts, texts)
def test_encoded_texts_sort_as_the_texts_do(one: str, other: str) -> None:
    assert (encode(one).encode() < encode(other).encode()) == (one < other)


@given(texts, texts)
def test_a_prefix_stays_a_prefix(one: str, other: str) -> None:
    assert encode(one + other).startswith(encode(one))


@pytest.mark.parametrize("text", [ODD, "", "plain", "\x00", "\ud800", "\\N", "\t\n\\"])
def test_the_server_returns_what_it_got(session: PostgresSession, text: str) -> None:
    assert session.value("SELECT ?::text", [text]) == text
    assert session.all("SELECT t.value FROM texts(?) t", [[text, "x"]]) == [(text,), ("x",)]
    session.run('CREATE TEMPORARY TABLE stored (value text COLLATE "C")')
    try:
        session.insert("stored", "value", [(text,)])
        assert session.all("SELECT value FROM stored WHERE value = ?", [text]) == [(text,)]
        with session.transaction():
            assert list(session.each("SELECT value FROM stored")) == [(text,)]
    finally:
        session.run("DROP TABLE stored")
