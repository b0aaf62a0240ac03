"""Render documents as text for language models: extracts, outlines, lists of documents, related documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from marklight.errors import NotFound
from marklight.formatting import one_line, quoted
from marklight.surfaces.mcp.rendering import (
    DEFAULT_TOKENS,
    for_assistants,
    headed_location,
    location,
    notes_of,
    paragraph,
)
from marklight.surfaces.mcp.token_budget import (
    call,
    fit,
    max_bytes,
    size,
    truncate,
    truncate_extract,
)
from marklight.surfaces.render import heading_text, lines_text

Result = Mapping[str, Any]
MIN_EXTRACT_TOKENS = 60
"""Smallest part of the budget with which a document is shown among others; with less it is listed."""
MAX_LISTED = 20
"""References that a note lists."""
OUTLINE_HEAD_BYTES = 300
"""Room for the lines of an outline that are no headings, besides the path."""


def listing_text(listing: Result, several: bool, state: str, tokens: int = DEFAULT_TOKENS) -> str:
    """Render the number of documents, then a line for each on this page; without any, the reason."""
    notes = [*([state] if state else []), *notes_of(listing)]
    if not listing["total"]:
        reason = for_assistants(listing["abstained"] or "No document matches")
        return fit([], [f"0 documents. {reason}.", *notes], tokens)
    head = (
        f"{_number(listing['total'], 'document')}, {_number(listing['passages'], 'passage')}"
        f" (page {listing['page']} of {listing['pages']}, by {listing['sort']})"
    )
    rows = [
        f"[{each['rank']}] {_listed(each, several)} ({', '.join(_listing_facts(each))})"
        for each in listing["documents"]
    ]
    for shown in range(len(rows), -1, -1):
        left = len(rows) - shown
        more = [f"note: {left} of this page omitted; increase max_tokens to see them"] * bool(left)
        for kept in (notes, []):
            text = "\n".join([head, *rows[:shown], *more, *kept])
            if size(text) <= max_bytes(tokens):
                return text
    return truncate(text, tokens)


def _listed(document: Result, several: bool) -> str:
    name = location(document, several, lines=False)
    return f"{name} § {one_line(document['title'])}" if document["title"] else name


def _listing_facts(document: Result) -> list[str]:
    facts = [_number(document["passages"], "passage"), document["dated"][:10]]
    if document["score"] is not None:
        facts.append(f"{document['score']:.2f}")
    return [*facts, *(["by meaning"] if document["match"] == "meaning" else [])]


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def tags_text(tags: Mapping[str, int], page: int, tokens: int = DEFAULT_TOKENS) -> str:
    """Render the tags of the library with their number of documents, most frequent first."""
    rows = [
        f"{one_line(tag)} ({count:,})"
        for tag, count in sorted(tags.items(), key=lambda item: (-item[1], item[0]))
    ]
    if not rows:
        return "No document has a tag."
    pages = list(_pages(rows, max_bytes(tokens) - OUTLINE_HEAD_BYTES, ", "))
    shown = pages[min(page, len(pages)) - 1]
    more = f"\n{_page_note(page, len(pages))}" if len(pages) > 1 else ""
    return truncate(f"{_number(len(rows), 'tag')}: {', '.join(shown)}{more}", tokens)


def limit_extract(extract: Result, several: bool, tokens: int) -> dict[str, Any]:
    """Truncate an extract to the token budget; its text and its values are cut alike."""
    overhead = size(extract_text({**extract, "content": ""}, several))
    return truncate_extract(extract, location(extract, several, lines=False), overhead, tokens)


def extract_text(extract: Result, several: bool) -> str:
    """Render a part of a document as a quote below its reference."""
    text = f"document: {headed_location(extract, several)}\n{quoted(extract['content'])}"
    return "\n\n".join([text, *paragraph(notes_of(extract))])


def numbered(extract: Result) -> dict[str, Any]:
    """Return an extract whose lines begin with their numbers."""
    first = extract["lines"][0]
    lines = enumerate(extract["content"].split("\n"), first)
    return {**extract, "content": "\n".join(f"{number}: {line}" for number, line in lines)}


def several_text(extracts: Sequence[Result], result: Result, several: bool, tokens: int) -> str:
    """Render several extracts: short ones whole, the others with equal parts of the token budget.

    Documents for which there is no room are listed.
    """
    missing = [f"note: {for_assistants(each)}" for each in result["missing"]]
    for shown in range(len(extracts), 0, -1):
        rest = [location(each, several) for each in extracts[shown:]]
        notes = [*missing, *_omitted_note([*rest, *result["omitted"]])]
        room = tokens - size("\n".join(notes)) // 3 - 2 * shown
        if shown > 1 and room < shown * MIN_EXTRACT_TOKENS:
            continue
        texts = [
            extract_text(limit_extract(each, several, part), several)
            for each, part in zip(extracts, _parts(extracts[:shown], several, room), strict=False)
        ]
        text = "\n\n".join([*texts, *paragraph(notes)])
        if size(text) <= max_bytes(tokens) or shown == 1:
            break
    return truncate(text, tokens)


def _omitted_note(refs: Sequence[str]) -> list[str]:
    if not refs:
        return []
    more = f" (and {len(refs) - MAX_LISTED} more)" if len(refs) > MAX_LISTED else ""
    return [f"note: {len(refs)} not shown; {call(list(refs[:MAX_LISTED]))} reads them{more}"]


def _parts(extracts: Sequence[Result], several: bool, tokens: int) -> list[int]:
    """Divide a token budget: what short extracts do not use goes to longer ones."""
    needed = {at: size(extract_text(each, several)) // 3 + 1 for at, each in enumerate(extracts)}
    parts: dict[int, int] = {}
    left = tokens
    for rank, at in enumerate(sorted(needed, key=lambda at: needed[at])):
        parts[at] = min(needed[at], max(1, left // (len(extracts) - rank)))
        left -= parts[at]
    return [parts[at] for at in range(len(extracts))]


def outline_text(
    outline: Result,
    several: bool,
    tokens: int = DEFAULT_TOKENS,
    *,
    depth: int | None = None,
    section: str = "",
    page: int = 1,
) -> str:
    """Render headings, indented by level, a page at a time.

    Without a depth, the deepest levels are omitted if there are too many headings for one page.
    """
    headings: Sequence[Result] = outline["outline"]
    path = location(outline, several, lines=False)
    if not headings:
        return "\n".join([f"no headings in document: {path}", *notes_of(outline)])
    if section:
        headings = _below(headings, section, path)
    levels = sorted({heading["level"] for heading in headings})
    room = max_bytes(tokens) - size(path) - OUTLINE_HEAD_BYTES
    deepest = _fitting_level(headings, levels, room)
    if depth is not None:
        deepest = levels[0] + depth - 1
    shown = [heading for heading in headings if heading["level"] <= deepest]
    pages = list(_pages(_heading_rows(shown, levels[0]), room, "\n"))
    rows = pages[min(page, len(pages)) - 1]
    notes = [_page_note(min(page, len(pages)), len(pages))] if len(pages) > 1 else []
    if omitted := len(headings) - len(shown):
        deeper = deepest - levels[0] + 2
        notes.append(
            f"note: {omitted:,} deeper headings omitted; depth={deeper} or section shows more"
        )
    return truncate("\n".join([f"document: {path}", *rows, *notes, *notes_of(outline)]), tokens)


def _below(headings: Sequence[Result], section: str, path: str) -> list[Result]:
    """Return the heading that a text or an anchor names, and those below it."""
    wanted = section.strip().lstrip("#").strip().lower()
    names = [(each, (each["anchor"].lower(), each["text"].lower())) for each in headings]
    named = [each for each, known in names if wanted in known]
    named += [each for each, known in names if any(name.startswith(wanted) for name in known)]
    for heading in named[:1]:
        first, last = heading["lines"]
        return [each for each in headings if first <= each["lines"][0] <= last]
    from marklight.text.suggestions import similar_keys

    known = {name: each["anchor"] for each in headings for name in (each["anchor"], each["text"])}
    similar = " or ".join(map(repr, similar_keys(wanted, known)))
    hint = f"Did you mean {similar}?" if similar else "Leave section out to see the headings"
    raise NotFound(f"{path} has no heading {section[:100]!r}", hint)


def _fitting_level(headings: Sequence[Result], levels: Sequence[int], room: int) -> int:
    """Return the deepest level whose headings fit on one page; a title alone is no outline."""
    for deepest in reversed(levels):
        shown = [heading for heading in headings if heading["level"] <= deepest]
        if size("\n".join(_heading_rows(shown, levels[0]))) <= room and len(shown) > 1:
            return deepest
    several = (level for level in levels if sum(each["level"] <= level for each in headings) > 1)
    return next(several, levels[-1])


def _heading_rows(headings: Sequence[Result], top: int) -> list[str]:
    width = max((len(lines_text(heading["lines"])) for heading in headings), default=0)
    return [
        f"{lines_text(heading['lines']):<{width}}"
        f" {heading_text(heading['level'] - top, heading['text'], heading['anchor'])}"
        for heading in headings
    ]


def _pages(rows: Sequence[str], room: int, separator: str) -> Iterator[list[str]]:
    """Yield the rows in pages that fit a number of bytes; a page has at least one row."""
    page: list[str] = []
    used = 0
    for row in rows:
        used += size(row + separator)
        if page and used > room:
            yield page
            page, used = [], size(row + separator)
        page.append(row)
    yield page


def _page_note(page: int, pages: int) -> str:
    following = f"; page={page + 1} continues" if page < pages else ""
    return f"note: page {page} of {pages}{following}"


def related_text(related: Result, several: bool) -> str:
    """Render related documents with their scores and the reasons."""
    rows = [
        f"({document['score']:.2f}) {location(document, several, lines=False)}"
        f"{one_line(' § ' + document['title']) if document['title'] else ''}"
        f"\nwhy: {one_line('; '.join(document['reasons']))}"
        for document in related["related"]
    ]
    if not rows:
        path = location(related, several, lines=False)
        rows = [f"no document is related to {path} by links, tags or meaning"]
    return "\n\n".join([*rows, *paragraph(notes_of(related))])
