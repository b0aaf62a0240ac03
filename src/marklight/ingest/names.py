"""Which names make a document, which can be stored, and which lie below another."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from marklight.ingest.parse import OFF, parser_for

_ENDING = re.compile(r"\*\.[A-Za-z0-9]+$")


def inside(path: str, root: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def is_text(name: str) -> bool:
    """Whether a name can be stored; one that the system could not decode holds half characters."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def is_document(parsers: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Whether a folder and a name make a document, fast where all patterns are endings."""
    if all(_ENDING.match(pattern) for pattern in parsers):
        known = endings(parsers)
        return lambda _, name: name.lower().endswith(known)
    return lambda folder, name: parser_for(folder + name, parsers) is not None


def endings(parsers: Mapping[str, str]) -> tuple[str, ...]:
    """The endings, in lower case, that make a document whatever other patterns say."""
    found: dict[str, str] = {}
    for pattern, parser in parsers.items():
        if _ENDING.match(pattern):
            found.setdefault(pattern[1:].lower(), parser)
        elif parser in OFF:
            break  # It may be meant for some of the files that the patterns below fit.
    return tuple(ending for ending, parser in found.items() if parser not in OFF)
