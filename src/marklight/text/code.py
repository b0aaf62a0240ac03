"""The words of code: names whole and in their parts."""

from __future__ import annotations

import re

from marklight.text.prose import MAX_WORD, words

_IDENTIFIER = re.compile(r"c\+\+|[A-Za-z_$][\w$]*|::|\d+(?:\.\d+)*|[^\W\d_]+", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")

_RUN = re.compile(r"\w+")
_SEAM = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]|[^\W_]_+[^\W_]")
"""Where one word ends and the next begins inside a name: `getUser`, `HTTPError`, `user_id`."""


class _Names(dict[str, tuple[str, ...]]):
    """Each name whole and in its parts, found once since code repeats its names."""

    _MOST = 200_000

    def __missing__(self, name: str) -> tuple[str, ...]:
        if len(self) >= self._MOST:
            self.clear()
        whole = name.lower()
        parts = () if name[-1] == "+" else (part.lower() for part in _PARTS.findall(name))
        tokens = (whole, *(part for part in parts if part != whole))
        self[name] = tuple(token for token in tokens if len(token) <= MAX_WORD)
        return self[name]


_names = _Names()


class _Parts(dict[str, tuple[str, ...]]):
    """The words that each run of letters is made of, none if it is made of one."""

    _MOST = 200_000

    def __missing__(self, run: str) -> tuple[str, ...]:
        if len(self) >= self._MOST:
            self.clear()
        made = len(run) <= MAX_WORD and _SEAM.search(run)
        parts = (part for part in _PARTS.findall(run) if len(part) > 1) if made else ()
        self[run] = tuple(words(" ".join(parts)))
        return self[run]


_parts = _Parts()


def identifiers(text: str) -> list[str]:
    """The words of code: each name whole and in its parts, so `getUserById` finds `get_user_by_id`."""
    return [token for name in _IDENTIFIER.findall(text) for token in _names[name]]


def parts(text: str) -> list[str]:
    """The words that names in a text are made of, as prose has them: of `getUserById`, get, user and id.

    One letter alone says nothing. A word that is no name made of several has no parts.
    """
    return [word for run in _RUN.findall(text) for word in _parts[run]]
