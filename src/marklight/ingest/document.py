"""Build a document from a source text: frontmatter fields, parsed text, outline and links."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from marklight.ingest import frontmatter, links
from marklight.ingest.parse import Block, Mention, ParsedText, Style, Title, parser
from marklight.ingest.read import Source
from marklight.ingest.recipe import PARSERS, parser_for
from marklight.model import Document, DocumentId, Heading, Kind, digest, without_spans
from marklight.text.dates import find_dates, parse_written_date
from marklight.text.languages import detect, normalize_code
from marklight.text.markdown import comment_spans, without_comments

_TITLE_CHARS = 300
"""A longer title is cut: it is repeated in front of every passage."""
_DATE_KEYS = ("modified", "updated", "lastmod", "lastmodified", "lastupdated", "date", "created")
"""Frontmatter keys of a document's date, best first: the last change comes before the creation. Then any other key counts."""
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_REMARK_CHARS = 80
"""A longer value is cut in a remark."""


def parse_document(
    id: DocumentId, source: Source, parsers: Mapping[str, str] = PARSERS, recipe: str = ""
) -> tuple[Document, ParsedText]:
    """Return a document and its parsed text; accepts any text."""
    text = source.text
    front = frontmatter.split(text)
    values = _lower_keys(front.values)
    parser_name = parser_for(id.path, parsers) or "plain"
    parsed = ParsedText(text, front.lines, collection=id.collection)
    if parser_name == "markdown":
        indexed, comments = without_comments(text, parsed.body_start)
        if comments:
            parsed = ParsedText(indexed, front.lines, comments, id.collection)
    parser(parser_name).parse(parsed)
    if front.remark:  # the frontmatter is text
        parsed.body = 0
        if front.lines:
            parsed.blocks.insert(0, Block(Kind.PROSE, 0, 0))
    related = [
        Mention(Style.RELATED, _without_brackets(name), name, 0, -1)
        for name in _list_field(values, "related")
    ]
    included = [
        Mention(Style.MARKDOWN, target, "", bisect(parsed.starts, start) - 1, -1, embeds=True)
        for start, _ in parsed.comments
        if (target := links.include_target(text, start))
    ]
    aliases = _list_field(values, "aliases", "alias")
    title = _title(id, values, parsed)
    dates = {key: _date_value(value) for key, value in values.items()}
    document = Document(
        id=id,
        title=title,
        text=text,
        file=source.file,
        digest=digest(text),
        recipe=recipe,
        description=_text_field(values, "description", "summary"),
        keywords=_list_field(values, "keywords"),
        tags=_unique_tags(_list_field(values, "tags", "tag"), parsed.tags),
        aliases=aliases,
        author=", ".join(_list_field(values, "author", "authors", split=False)),
        category=_text_field(values, "category", "type"),
        language=normalize_code(_text_field(values, "language", "lang"))
        or detect(text[parsed.body_start :]),
        date=_own_date(values, dates) or _day_in(id.path) or _day_in(title),
        metadata=front.values,
        outline=_outline(parsed.titles, len(parsed.lines) - text.endswith("\n")),
        links=links.links_for([*related, *included, *parsed.mentions], parsed.titles, id),
        names=links.names_for(id.path, aliases),
        blocks={name: line + 1 for name, line in parsed.marks.items()},
        remarks=(
            *source.remarks,
            *filter(None, [front.remark]),
            *_unreadable_dates(values, dates),
            *parsed.remarks,
        ),
    )
    return document, parsed


def _outline(titles: Sequence[Title], lines: int) -> tuple[Heading, ...]:
    """Return the headings, each with the lines of its section."""
    ends = [lines] * len(titles)
    above: list[int] = []
    for index, title in enumerate(titles):
        while above and titles[above[-1]].level >= title.level:
            ends[above.pop()] = title.line
        above.append(index)
    return tuple(
        Heading(title.level, title.text, title.anchor, (title.line + 1, max(end, title.end)))
        for title, end in zip(titles, ends, strict=True)
    )


def _title(id: DocumentId, values: Mapping[str, Any], parsed: ParsedText) -> str:
    """Return the title in the frontmatter, else the first heading of level 1, else the file name."""
    stem = id.path.rpartition("/")[2]
    first = next((title.text for title in parsed.titles if title.level == 1 and title.text), "")
    title = _text_field(values, "title") or first or stem.rpartition(".")[0] or stem
    return title if len(title) <= _TITLE_CHARS else title[: _TITLE_CHARS - 1] + "…"


def _text_field(values: Mapping[str, Any], *keys: str) -> str:
    """Return the value of the first key that has one, as one line."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, list):
            value = ", ".join(str(item) for item in value if not isinstance(item, dict | list))
        if value not in (None, "") and not isinstance(value, dict | bool):
            text = str(value)
            directives = comment_spans(text) if "{%" in text else ()
            return " ".join(without_spans(text, directives).split())
    return ""


def _list_field(values: Mapping[str, Any], *keys: str, split: bool = True) -> tuple[str, ...]:
    """Return the items of the first key that has a list or a text with commas; a table is ignored."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and split:
            value = re.split(r",|\s+(?=#)", value)
        items = value if isinstance(value, list) else [value]
        names = [item.get("name") if isinstance(item, dict) else item for item in items]
        # YAML reads an unquoted [[Page]] as a list in a list.
        flat = [part for item in names for part in (item if isinstance(item, list) else (item,))]
        texts = [" ".join(str(item).split()) for item in flat if item not in (None, "")]
        if any(texts):
            return tuple(dict.fromkeys(filter(None, texts)))
    return ()


def _without_brackets(name: str) -> str:
    """Return the target of a `[[wikilink]]`, or the name unchanged."""
    inner = name.strip()
    if inner.startswith("[[") and inner.endswith("]]"):
        inner = inner[2:-2].partition("|")[0]
    return inner.strip("[] ")


def _unique_tags(*lists: Iterable[str]) -> tuple[str, ...]:
    """Return each tag once, ignoring case, in the spelling of its first occurrence."""
    tags: dict[str, str] = {}
    for tag in (tag for several in lists for tag in several):
        if name := tag.strip().lstrip("#").strip("/ "):
            tags.setdefault(name.lower(), name)
    return tuple(tags.values())


def _lower_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by key in lower case; of `Title` and `title` the latter counts."""
    lowered: dict[str, Any] = {}
    for key, value in values.items():
        if key.islower() or key.lower() not in lowered:
            lowered[key.strip().lower()] = value
    return lowered


def _date_value(value: object) -> str | None:
    """Return a frontmatter value that is a date, also in a list or as `[[2026-01-31]]`, as ISO 8601."""
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = _without_brackets(str(value))
    first = _ISO_DAY.match(text)
    return parse_written_date(text) or (parse_written_date(first[0]) if first else None)


def _own_date(values: Mapping[str, Any], dates: Mapping[str, str | None]) -> str | None:
    """Return the document's own date: that of the best key. Digits alone, such as `id: 20260131`, need one of these keys."""
    named = {_letters(key): date for key, date in dates.items() if date}
    others = (date for key, date in dates.items() if date and not str(values[key]).isdecimal())
    return next(filter(None, map(named.get, _DATE_KEYS)), None) or next(others, None)


def _unreadable_dates(values: Mapping[str, Any], dates: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a remark for each key that should have a date and has another text."""
    for key, value in values.items():
        name = _letters(key)
        expected = name in _DATE_KEYS or name == "published" or name.endswith("date")
        text = str(value).strip() if isinstance(value, str | int) else ""
        if expected and text and dates[key] is None and not isinstance(value, bool):
            shown = text if len(text) <= _REMARK_CHARS else f"{text[:_REMARK_CHARS]}…"
            yield f"{key}: {shown!r} is not a date that can be read; write it as 2026-01-31"


def _letters(key: str) -> str:
    return re.sub(r"[\s_-]", "", key)


def _day_in(text: str) -> str | None:
    """Return the first day that a path or a title contains; a month or a year alone does not date a document."""
    return next(
        (written.iso for written in find_dates(text) if written.first == written.last), None
    )
