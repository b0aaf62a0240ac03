"""Links and related documents as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marklight.escaping import one_line
from marklight.formatting import path as shown_path
from marklight.surfaces.style import PLAIN, Style

if TYPE_CHECKING:
    from marklight.model import DocumentId, ResolvedLink
    from marklight.report import Links, Related


def links_text(links: Links, several_collections: bool = False, style: Style = PLAIN) -> str:
    """Lists of links, each under what it is; of a library those that lead nowhere."""

    def path(id: DocumentId, line: int | None = None) -> str:
        name = shown_path(id, several_collections)
        return style.link(name if line is None else f"{name}:{line}", id, line or 1)

    def out(each: ResolvedLink) -> str:
        assert each.target
        aim = path(each.target) + _fragment(each)
        line = f":{each.link.line}"
        return f"{' ' * (6 - len(line))}{style.link(line, each.source)}  {aim}{_type(each)}"

    def back(each: ResolvedLink) -> str:
        part = f"  {_fragment(each)}" if each.link.fragment else ""
        return f"{path(each.source, each.link.line)}{part}{_type(each)}"

    def nowhere(each: ResolvedLink) -> str:
        where = path(each.source, each.link.line)
        return f"{where}  {one_line(each.link.target)}{_fragment(each)}{_type(each)}"

    lists: list[tuple[str, str, list[str]]] = [
        ("links to", "out", [out(each) for each in links.out]),
        ("linked from", "in", [back(each) for each in links.back]),
        ("leads nowhere", "unresolved", [nowhere(each) for each in links.unresolved]),
        ("without any link", "orphans", [path(each) for each in links.orphans]),
    ]
    parts = []
    for name, key, rows in lists:
        if rows:
            more = links.more.get(key, 0)
            head = style.bold(f"{name} ({len(rows) + more:,})")
            left = [f"  … and {more:,} more; -n shows them"] if more else []
            parts.append("\n".join([head, *(f"  {row}" for row in rows), *left]))
    return "\n\n".join(parts)


def related_text(found: Related, several_collections: bool = False, style: Style = PLAIN) -> str:
    """Each document with its score, and under it the reasons."""
    rows = []
    for each in found.relatives:
        name = style.link(shown_path(each.document, several_collections), each.document)
        title = f"  {one_line(each.title)}" if each.title else ""
        rows.append(f"{each.score:.2f}  {style.bold(name)}{title}")
        rows.append(f"      {one_line('; '.join(each.reasons))}")
    return "\n".join(rows)


def _fragment(each: ResolvedLink) -> str:
    return one_line(f"#{each.link.fragment}") if each.link.fragment else ""


def _type(each: ResolvedLink) -> str:
    """What a link says beside that it is there."""
    return "" if each.link.type.value == "links_to" else f"  ({each.link.type.value})"
