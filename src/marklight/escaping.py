"""Escape and quote text of documents for terminals, assistants and JSON.

Text of a document is untrusted. Three functions keep it apart from the lines that Marklight writes itself:

- `visible` escapes characters that control a terminal, reorder text or hide it, as `\\x1b` or `\\u202e`.
- `one_line` also escapes line breaks, for a name, title or message within a line.
- `quoted` puts `> ` before every line. No line of ours begins with `>`, so no text can pose as one.

`escape_json` escapes the same characters in serialised JSON; the values stay equal.
"""

from __future__ import annotations

import re

QUOTE = "> "
"""Before every line of a document's text; an empty line is `>` alone."""

_ABOVE_ASCII = r"\x7f-\x9f\u2028\u2029"
"""DEL, C1, and the two separators that some programs treat as line breaks."""
_CONTROLS = rf"\x00-\x08\x0b-\x1f{_ABOVE_ASCII}"
"""The above and C0, without tab and newline."""
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The property Bidi_Control. Hebrew and Arabic letters have their direction without it."""
_TAGS = r"\U000e0000-\U000e007f"
"""Invisible copies of ASCII: a model reads a prompt hidden in them, a person does not see it."""
_JOINERS = r"\u200c\u200d"
"""Persian, Indic scripts and emoji need them between two visible characters."""
_VARIATIONS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = (
    rf"{_JOINERS}{_VARIATIONS}\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065"
    r"\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
"""The rest of the property Default_Ignorable_Code_Point. After a visible character it is orthography;
after another one, or after a space, it may hide data."""
_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The only emoji made of tags that Unicode recommends: England, Scotland, Wales."""

_ALWAYS = f"[{_CONTROLS}{_BIDI}{_TAGS}]"
_HIDDEN = re.compile(
    rf"({'|'.join(_FLAGS)})|{_ALWAYS}"
    # An emoji selector is followed by a joiner in sequences such as a heart on fire.
    rf"|(?:\A|(?<=[\s{_CONTROLS}{_BIDI}{_TAGS}{_INVISIBLE}]))(?!(?<=\ufe0f)\u200d)[{_INVISIBLE}]"
)
_TERMINAL_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNSAFE_IN_JSON = re.compile(f"[{_ABOVE_ASCII}{_BIDI}{_TAGS}]")
"""Every serialiser escapes C0 in strings; elsewhere it only separates values."""


def visible(text: str) -> str:
    """Escape control, bidirectional, tag and hidden characters; line breaks and tabs stay."""
    return _HIDDEN.sub(lambda match: match[0] if match[1] else _escape(match[0]), text)


def without_controls(text: str) -> str:
    """Escape C0, DEL and C1 only: text does not need them, and a pipe often ends at a terminal."""
    return _TERMINAL_CONTROLS.sub(lambda match: _escape(match[0]), text)


def one_line(text: str) -> str:
    """Escape line breaks and all invisible characters, so that a name stays within its line."""
    return "".join(map(_within_line, visible(text)))


def quoted(text: str) -> str:
    """Put `> ` before every line of a document's text and escape hidden characters."""
    return "\n".join(map(_quoted_line, visible(text).split("\n")))


def escape_json(serialised: str) -> str:
    """Escape characters in serialised JSON that are not safe to print; the values stay equal."""
    return _UNSAFE_IN_JSON.sub(lambda match: _json_escape(match[0]), serialised)


def _quoted_line(line: str) -> str:
    return f"{QUOTE}{line}" if line else QUOTE.rstrip()


def _within_line(character: str) -> str:
    # `visible` keeps joiners and selectors only where they belong; spaces of any width are visible.
    if character.isprintable() or _KEPT_WITHIN_LINE.match(character):
        return character
    return _escape(character)


_KEPT_WITHIN_LINE = re.compile(
    rf"[{_INVISIBLE}{_TAGS}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]|[^\S\n\t]"
)
"""Also the visible Arabic and Syriac characters of the Unicode category Format."""


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
