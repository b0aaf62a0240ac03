"""Source text to a document: its parser is chosen by the file's name, one file a format.

source = read(path)
parsed = understand(id, source)        # parsed.document is all but the chunks
entry = Chunker()([parsed])[0]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from itertools import accumulate
from typing import Any, Protocol, cast

from marklight.errors import SettingsError
from marklight.ingest import frontmatter, links
from marklight.ingest.parse.form import Block, Mention, Parsed, Structure, Style
from marklight.ingest.read import Source
from marklight.model import Document, DocumentId, Heading, Kind
from marklight.text import digest

PARSERS: Mapping[str, str] = {
    "*.md": "markdown",
    "*.markdown": "markdown",
    "*.mdx": "markdown",
    "*.txt": "plain",
}
"""Which parser reads which files; a parser is the module of that name in this folder."""

_NAMES = ("markdown", "plain")
_TITLE_CHARS = 300
_ISO_DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)


class Parser(Protocol):
    """What a module in this folder offers."""

    FINGERPRINT: str

    def parse(self, lines: list[str], first: int) -> Structure: ...


def parser_for(path: str, parsers: Mapping[str, str] = PARSERS) -> str | None:
    """Name of the parser for a path, by the first pattern that fits its name or its whole path."""
    name = path.rpartition("/")[2].lower()
    for pattern, parser in parsers.items():
        folded = pattern.lower()
        if fnmatchcase(name, folded) or fnmatchcase(path.lower(), folded):
            return parser
    return None


@lru_cache
def parser(name: str) -> Parser:
    """The parser of this name, loaded when it is first needed."""
    if name not in _NAMES:
        raise SettingsError(f"no parser is called {name!r}", f"Known: {', '.join(_NAMES)}")
    return cast(Parser, import_module(f"{__name__}.{name}"))


def fingerprint(parsers: Mapping[str, str] = PARSERS) -> str:
    """Changes whenever a document would be understood differently."""
    used = [f"{pattern}={parser(name).FINGERPRINT}" for pattern, name in parsers.items()]
    return digest("frontmatter 1", *used, size=8)


def understand(
    id: DocumentId, source: Source, parsers: Mapping[str, str] = PARSERS, recipe: str = ""
) -> Parsed:
    """A document and its structure; never raises, whatever the text."""
    text = source.text
    lines = text.split("\n")
    front = frontmatter.split(text)
    values = front.values
    found = parser(parser_for(id.path, parsers) or "plain").parse(lines, front.lines)
    if front.remark and front.lines:
        found.blocks.insert(0, Block(Kind.PROSE, 0, 0))
    related = [
        Mention(Style.RELATED, _unbracketed(name), name, 0, -1) for name in _list(values, "related")
    ]
    aliases = _list(values, "aliases", "alias")
    document = Document(
        id=id,
        title=_title(id, values, found),
        text=text,
        file=source.file,
        digest=digest(text),
        recipe=recipe,
        description=_text(values, "description", "summary"),
        keywords=_list(values, "keywords"),
        tags=_tags(_list(values, "tags", "tag"), found.tags),
        aliases=aliases,
        author=", ".join(_list(values, "author", "authors", split=False)),
        category=_text(values, "category", "type"),
        date=_date(values),
        metadata=values,
        outline=_outline(found, len(lines)),
        links=links.links_for([*related, *found.mentions], found.titles, id),
        names=links.names_for(id.path, aliases),
        blocks={name: line + 1 for name, line in found.marks.items()},
        remarks=(*source.remarks, *filter(None, [front.remark]), *found.remarks),
    )
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    starts[-1] = len(text)
    return Parsed(document, found, starts, 0 if front.remark else front.lines)


def _title(id: DocumentId, values: Mapping[str, Any], found: Structure) -> str:
    stem = id.path.rpartition("/")[2]
    first = next((title.text for title in found.titles if title.level == 1 and title.text), "")
    title = _text(values, "title") or first or stem.rpartition(".")[0] or stem
    return title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + "…"


def _outline(found: Structure, lines: int) -> tuple[Heading, ...]:
    ends = [lines] * len(found.titles)
    above: list[int] = []
    for index, title in enumerate(found.titles):
        while above and found.titles[above[-1]].level >= title.level:
            ends[above.pop()] = title.line
        above.append(index)
    return tuple(
        Heading(title.level, title.text, title.anchor, (title.line + 1, max(end, title.end)))
        for title, end in zip(found.titles, ends, strict=True)
    )


def _text(values: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = values.get(key)
        if isinstance(value, list):
            value = ", ".join(str(item) for item in value if not isinstance(item, dict | list))
        if value not in (None, "") and not isinstance(value, dict | bool):
            return " ".join(str(value).split())
    return ""


def _list(values: Mapping[str, Any], *keys: str, split: bool = True) -> tuple[str, ...]:
    """A list, or a text with commas; what is neither, such as a table, is left alone."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and split:
            value = value.split(",")
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


def _unbracketed(name: str) -> str:
    inner = name.strip()
    if inner.startswith("[[") and inner.endswith("]]"):
        inner = inner[2:-2].partition("|")[0]
    return inner.strip("[] ")


def _tags(*lists: Iterable[str]) -> tuple[str, ...]:
    """Each once, whatever its case, as it was first written."""
    tags: dict[str, str] = {}
    for tag in (tag for several in lists for tag in several):
        if name := tag.strip().lstrip("#").strip("/ "):
            tags.setdefault(name.lower(), name)
    return tuple(tags.values())


def _date(values: Mapping[str, Any]) -> str | None:
    """The document's own date; the day it was last changed tells more than the day it began."""
    for key in ("modified", "updated", "lastmod", "date", "created"):
        found = _ISO_DATE.match(str(values.get(key, "")))
        if found:
            return found[0].replace(" ", "T")
    return None
