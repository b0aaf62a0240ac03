"""Render a list of documents as text, Markdown, JSON or file names."""

from __future__ import annotations

from marklight.answer import iso_seconds
from marklight.formatting import one_line, place_text
from marklight.listing import ListedDocument, Listing
from marklight.surfaces.render import PLAIN, Style, inline_markdown, link_target, to_json


def listing_as(listing: Listing, format: str, style: Style = PLAIN) -> str:
    """Render a list of documents in one of `FORMATS`; only text is styled."""
    if format == "json":
        return to_json(listing.to_dict())
    if format == "jsonl":
        rows = zip(listing.to_dict()["documents"], listing.documents, strict=True)
        return "\n".join(
            to_json({**row, "file": style.file(each.document)}, indent=None) for row, each in rows
        )
    if format == "files":
        return "\n".join(one_line(style.file(each.document)) for each in listing.documents)
    several = listing.several_collections
    if format == "md":
        rows_md = (
            f"- [{inline_markdown(_document_name(each, several))}]({link_target(style.file(each.document))})"
            f" ({_document_facts(each)})"
            for each in listing.documents
        )
        return "\n".join([*rows_md, "", listing.summary])
    rows_text = (
        f"{_document_name(each, several, style)} {style.dim(f'({_document_facts(each)})')}"
        for each in listing.documents
    )
    return "\n".join([*rows_text, style.bold(listing.summary)])


def _document_name(each: ListedDocument, several: bool, style: Style = PLAIN) -> str:
    """Return `guide/auth.md § Authentication`."""
    place = place_text(each.document, several)
    path = style.place(place, each.document, each.lines[0])
    return f"{style.bold(path)} § {one_line(each.title)}" if each.title else style.bold(path)


def _document_facts(each: ListedDocument) -> str:
    """Return the number of passages, the date and the score."""
    facts = [f"{each.passages:,} passage{'s' * (each.passages != 1)}", iso_seconds(each.dated)[:10]]
    if each.score is not None:
        facts.append(f"{each.score:.2f}")
    return ", ".join([*facts, *(["by meaning"] if each.by_meaning else [])])
