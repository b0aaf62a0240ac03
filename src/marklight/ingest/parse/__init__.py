"""Source text to a document: its parser is chosen by the file's name, one file a format.

source = read(path)
parsed = understand(id, source)        # parsed.document is all but the chunks
entry = Chunker()([parsed])[0]
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import import_module
from itertools import accumulate
from typing import Protocol, cast

from marklight.errors import SettingsError
from marklight.ingest import fields, frontmatter, links
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

OFF = ("", "none")
"""Instead of a parser: files that fit this pattern are no documents."""

VERSIONS = {"markdown": 3, "plain": 1}
"""Parsers, and how often each learned to understand a document differently.

Noted here rather than in their files: a run over nothing new asks for them and loads no parser.
"""


class Parser(Protocol):
    """What a module in this folder offers."""

    def parse(self, lines: list[str], first: int) -> Structure: ...


def with_defaults(parsers: Mapping[str, str]) -> dict[str, str]:
    """These patterns, then ours that are not among them: the first that fits a name decides."""
    return {**parsers, **{each: name for each, name in PARSERS.items() if each not in parsers}}


def parser_for(path: str, parsers: Mapping[str, str] = PARSERS) -> str | None:
    """Name of the parser for a path, by the first pattern that fits its name or its whole path."""
    for pattern, parser in parsers.items():
        if parser_fits(path, pattern):
            return parser if parser not in OFF else None
    return None


def parser_fits(path: str, pattern: str) -> bool:
    """Whether a pattern is meant for this path."""
    folded, whole = pattern.lower(), path.lower()
    return fnmatchcase(whole.rpartition("/")[2], folded) or fnmatchcase(whole, folded)


def demand_known(name: str) -> None:
    """A parser of this name must be in this folder."""
    if name not in VERSIONS:
        raise SettingsError(f"no parser is called {name!r}", f"Known: {', '.join(VERSIONS)}")


@lru_cache
def parser(name: str) -> Parser:
    """The parser of this name, loaded when it is first needed."""
    demand_known(name)
    return cast(Parser, import_module(f"{__name__}.{name}"))


def fingerprint(parsers: Mapping[str, str] = PARSERS) -> str:
    """Changes whenever a document would be understood differently."""
    used = []
    for pattern, name in parsers.items():
        if name not in OFF:
            demand_known(name)
        used.append(f"{pattern}={name} {VERSIONS.get(name, '')}".rstrip())
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
        Mention(Style.RELATED, fields.unbracketed(name), name, 0, -1)
        for name in fields.list_of(values, "related")
    ]
    aliases = fields.list_of(values, "aliases", "alias")
    document = Document(
        id=id,
        title=fields.title_of(id, values, found),
        text=text,
        file=source.file,
        digest=digest(text),
        recipe=recipe,
        description=fields.text_of(values, "description", "summary"),
        keywords=fields.list_of(values, "keywords"),
        tags=fields.tags(fields.list_of(values, "tags", "tag"), found.tags),
        aliases=aliases,
        author=", ".join(fields.list_of(values, "author", "authors", split=False)),
        category=fields.text_of(values, "category", "type"),
        date=fields.date_of(values),
        metadata=values,
        outline=_outline(found, len(lines) - text.endswith("\n")),
        links=links.links_for([*related, *found.mentions], found.titles, id),
        names=links.names_for(id.path, aliases),
        blocks={name: line + 1 for name, line in found.marks.items()},
        remarks=(*source.remarks, *filter(None, [front.remark]), *found.remarks),
    )
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    starts[-1] = len(text)
    return Parsed(document, found, starts, 0 if front.remark else front.lines)


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
