"""Store any Python string as PostgreSQL text: NUL and lone surrogates, which it cannot store, are escaped.

The escapes keep equality, prefixes and code point order, so comparisons in SQL give the same result as in Python. NUL
becomes U+0001 U+0001, and a lone surrogate U+E000 with a character from U+0100 on; the two escape characters themselves
are doubled or followed by a greater one. Other texts are stored unchanged.
"""

from __future__ import annotations

import re

from psycopg.abc import Buffer
from psycopg.types.string import StrDumper, TextBinaryLoader, TextLoader

_LOW, _HIGH = "\x01", "\ue000"
_SURROGATE = 0xD800
_UNSAFE = re.compile("[\x00\x01\ud800-\udfff\ue000]")
_ESCAPED = re.compile("\x01.|\ue000.", re.DOTALL)
_HIGH_BYTES = _HIGH.encode()


def encode(text: str) -> str:
    """Return a text that PostgreSQL can store."""
    return _UNSAFE.sub(_escape, text)


def decode(text: str) -> str:
    """Return the text that was encoded."""
    return _ESCAPED.sub(_unescape, text)


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    if sign <= _LOW:
        return _LOW + chr(ord(sign) + 1)
    return _HIGH + (_HIGH if sign == _HIGH else chr(ord(sign) - _SURROGATE + 0x100))


def _unescape(match: re.Match[str]) -> str:
    first, second = match[0][0], match[0][1]
    if first == _LOW:
        return chr(ord(second) - 1)
    return _HIGH if second == _HIGH else chr(ord(second) - 0x100 + _SURROGATE)


class EscapingDumper(StrDumper):
    """Sends strings as text; escapes where needed."""

    def dump(self, obj: str) -> Buffer | None:
        if "\x00" in obj or _UNSAFE.search(obj):
            obj = encode(obj)
        return super().dump(obj)


class UnescapingLoader(TextLoader):
    """Reads text in text format."""

    def load(self, data: Buffer) -> str:
        text = bytes(data).decode()
        return decode(text) if _LOW in text or _HIGH in text else text


class UnescapingBinaryLoader(TextBinaryLoader):
    """Reads text in binary format, which is the same."""

    load = UnescapingLoader.load
