"""The words of code: names whole and in their parts."""

from __future__ import annotations

import re

from marklight.text.prose import MAX_WORD

_IDENTIFIER = re.compile(r"c\+\+|[A-Za-z_$][\w$]*|::|\d+(?:\.\d+)*|[^\W\d_]+", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")


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


def identifiers(text: str) -> list[str]:
    """The words of code: each name whole and in its parts, so `getUserById` finds `get_user_by_id`."""
    return [token for name in _IDENTIFIER.findall(text) for token in _names[name]]
