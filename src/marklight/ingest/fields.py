"""The fields that Marklight knows, out of whatever a document's frontmatter holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from marklight.ingest.parse.form import Structure
from marklight.model import DocumentId

_TITLE_CHARS = 300
_ISO_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)


def title_of(id: DocumentId, values: Mapping[str, Any], found: Structure) -> str:
    """The title that was given, else the first heading of level one, else the file's name."""
    stem = id.path.rpartition("/")[2]
    first = next((title.text for title in found.titles if title.level == 1 and title.text), "")
    title = text_of(values, "title") or first or stem.rpartition(".")[0] or stem
    return title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + "…"


def text_of(values: Mapping[str, Any], *keys: str) -> str:
    """The first of these keys that has a value, as one line."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, list):
            value = ", ".join(str(item) for item in value if not isinstance(item, dict | list))
        if value not in (None, "") and not isinstance(value, dict | bool):
            return " ".join(str(value).split())
    return ""


def list_of(values: Mapping[str, Any], *keys: str, split: bool = True) -> tuple[str, ...]:
    """A list, or a text with commas; what is neither, such as a table, is left alone."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and split:
            value = re.split(r",|\s+(?=#)", value)
        items = value if isinstance(value, list) else [value]
        named = [item.get("name") if isinstance(item, dict) else item for item in items]
        # YAML reads an unquoted [[Page]] as a list in a list.
        flat = [part for item in named for part in _flat(item)]
        texts = [" ".join(str(item).split()) for item in flat if item not in (None, "")]
        if any(texts):
            return tuple(dict.fromkeys(filter(None, texts)))
    return ()


def _flat(item: Any) -> Iterable[Any]:
    return item if isinstance(item, list) else (item,)


def unbracketed(name: str) -> str:
    """The target of a `[[wikilink]]` that stands alone, or the name as it is."""
    inner = name.strip()
    if inner.startswith("[[") and inner.endswith("]]"):
        inner = inner[2:-2].partition("|")[0]
    return inner.strip("[] ")


def tags(*lists: Iterable[str]) -> tuple[str, ...]:
    """Each once, whatever its case, as it was first written."""
    tags: dict[str, str] = {}
    for tag in (tag for several in lists for tag in several):
        if name := tag.strip().lstrip("#").strip("/ "):
            tags.setdefault(name.lower(), name)
    return tuple(tags.values())


def date_of(values: Mapping[str, Any]) -> str | None:
    """The document's own date; the day it was last changed tells more than the day it began."""
    for key in ("modified", "updated", "lastmod", "date", "created"):
        if found := _ISO_DATE.match(str(values.get(key, ""))):
            written = found[0].replace(" ", "T")
            try:
                datetime.fromisoformat(written)
            except ValueError:
                continue
            return written
    return None
