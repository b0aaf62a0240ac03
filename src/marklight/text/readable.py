"""Readable text of a passage for people: no markup, aligned tables, callouts by name; and snippets of it."""

from __future__ import annotations

import re
from html import unescape

from marklight.text.analyzer import analyze
from marklight.text.markdown import SHORTCODE, comment_spans, shortcode_arguments, strip_markup

_EMBED = re.compile(r"!\[\[[^\[\]\n]{1,500}\]\]")
_NAMED_ARGUMENT = re.compile(
    r"""\b([\w-]+)\s*=\s*(?:"([^"\n]{0,500})"|'([^'\n]{0,500})'|[^\s"']\S{0,500})"""
)
_SHOWN_ARGUMENTS = frozenset("alt caption description heading label summary text title".split())
"""Named arguments of shortcodes that contain text for readers, as in Hugo's own `figure`."""
_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?")
_MAX_FENCE_INDENT = 64
"""Characters before a fence on its line, block quotes and list items included. Hand-set; not measured."""
_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(`{3,}|~{3,})([^`\n]*)$")
_CODE_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)([^\n]{1,500}?)(?<!`)\1(?!`)")
_KEPT_CODE = re.compile("\x00(\\d+)\x05")
_CALLOUT = re.compile(
    r"[ \t]*(?:(?:>[ \t]*)+\[!([\w-]+)(?:\|[^\]\n]*)?\][+-]?|[!?]{3}\+?[ \t]+(\w+)|:{3,}[ \t]*\{?(\w+)\}?|/{3,}[ \t]+(\w+))[ \t|]*(.*)"
)
"""Callouts of Obsidian and GitHub, admonitions of MkDocs, Docusaurus and Material."""
_SITE_LINE = re.compile(r"[ \t]*(?:/{3,}|:{3,}|\{\*.*\*\}|\{%.*%\})[ \t]*")
"""Ends of admonitions, and includes of documentation sites."""
_TABLE_RULE = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_RULE = re.compile(r"[ \t]*(?:(?:[-*_][ \t]*){3,}|=+)")
_CELL_END = re.compile(r"(?<!\\)\|")
_QUOTE_MARKS = re.compile(r"[ \t]{0,3}(?:>[ \t]?)+")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_ITEM = re.compile(r"([ \t]*)[-*+][ \t]+(?:\[([ xX])\][ \t]+)?")
_STARTS_LINE = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]|[ \t]{0,3}#{1,6}[ \t]")
_ENDS_LINE = re.compile(r"(?:\\|  |<br[ \t]*/?>)$|^[ \t>]{0,9}#{1,6}[ \t]", re.IGNORECASE)
"""A hard line end, or a heading."""
_DEFINITION = re.compile(r"[ \t]{0,3}\[(?!\^)[^\]\n]{1,200}\]:[ \t]*\S+.*")
_INLINE_MARKUP = (
    (re.compile(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>"), r"\1"),
    (
        re.compile(
            r"<(a|abbr|b|cite|code|del|dfn|em|i|ins|kbd|mark|q|s|samp|small|span|strong|sub|sup|tt|u|var)"
            r"(?:\s[^<>]{0,500})?>([^<>]{0,500})</\1>"
        ),
        r"\2",
    ),
    (re.compile(r"<br[ \t]*/?>", re.IGNORECASE), "\n"),
    (re.compile(r"!\[\[([^\[\]|\n]{1,500})\|[\dx]+\]\]"), r"\1"),  # without the size of an image
    (re.compile(r"(?<!!)\[([^\[\]\n]{1,500})\]\[[^\[\]\n]{0,200}\]"), r"\1"),
    (
        re.compile(r"(?<![\\\w])(\*\*\*|___|\*\*|__|~~|==)(?=\S)([^\n]{1,300}?)(?<=\S)\1(?!\w)"),
        r"\2",
    ),
    (re.compile(r"(?<![\\\w*_])([*_])(?=[^\s*_])([^*_\n]{1,300}?)(?<=\S)\1(?![\w*_])"), r"\2"),
    (re.compile(r"[ \t]*\{[#:][^{}\n]{0,200}\}|[ \t]\^[A-Za-z0-9-]+$", re.MULTILINE), ""),
)
_SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_UNIT_END = re.compile(r"[.!?:][\"')\]]*[ \t]+(?=\S)|\n")
SNIPPET_CHARACTERS = 420
_SNIPPET_SOURCE = 20_000
"""Characters of a passage that a snippet is chosen from; only whole sections are longer."""
_TABLE_WIDTH = 100
"""Wider tables are not aligned: their rows would not fit a line."""


def readable(markdown: str, *, reflow: bool = False) -> str:
    """Return a passage as text for people: no markup, aligned tables; lines and code stay.

    `reflow` joins the lines of a paragraph, up to a hard line end, and drops blank lines outside code. Only a passage
    that is nothing but markup is returned unchanged.
    """
    lines: list[str] = []
    table: list[list[str]] = []
    fence = ""
    joins = False  # the line continues a paragraph
    for line in [*_without_comments(markdown).split("\n"), ""]:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            else:
                lines.append(line)
            continue
        quote = _QUOTE_MARKS.match(line)
        unquoted = line[quote.end() :] if quote else line
        is_row = unquoted.lstrip().startswith("|") and unquoted.count("|") > 1
        if table and not is_row:
            lines += _aligned(table)
            table = []
        continues = joins and not _STARTS_LINE.match(unquoted) and not _CALLOUT.fullmatch(line)
        joins = False
        if mark:
            fence = mark[1]
        elif is_row:
            if not _TABLE_RULE.fullmatch(line):
                table.append([_inline_text(cell).strip() for cell in _cells(unquoted)])
        elif (text := _line_text(line, unquoted)) is not None and (text or (lines and lines[-1])):
            if not reflow:
                lines.append(text)
            elif text:
                joins = not _ENDS_LINE.search(line) and not _CALLOUT.fullmatch(line)
                lines[-1:] = [f"{lines[-1]} {text.strip()}"] if continues else [*lines[-1:], text]
    text = "\n".join(lines).strip("\n")
    return text if text.strip() else markdown.strip()


def snippet(text: str, terms: frozenset[str], max_chars: int = SNIPPET_CHARACTERS) -> str:
    """Return the part of a readable text with the most query terms, from the start of a sentence or line."""
    text = text[:_SNIPPET_SOURCE]
    if len(text) <= max_chars:
        return text
    starts = [0, *(match.end() for match in _UNIT_END.finditer(text))]
    ends = [*starts[1:], len(text)]
    found = [
        terms.intersection(analyze(text[start:end]))
        for start, end in zip(starts, ends, strict=True)
    ]
    best, most = 0, 0
    for first, start in enumerate(starts):
        if not found[first]:
            continue
        seen = set(found[first])
        for last in range(first + 1, len(starts)):
            if ends[last] - start > max_chars:
                break
            seen |= found[last]
        if len(seen) > most:
            best, most = starts[first], len(seen)
    end = min(len(text), best + max_chars)
    if end < len(text) and (space := text.rfind(" ", best + max_chars // 2, end)) >= 0:
        end = space
    part = text[best:end].strip("\n").rstrip()
    return f"{'… ' if best else ''}{part}{' …' if end < len(text) else ''}"


def only_embeds(markdown: str) -> bool:
    """Return true if a passage embeds other documents or images and has no text of its own."""
    return bool(_EMBED.search(markdown)) and not _EMBED.sub("", markdown).strip()


def shortcode_text(source: str) -> str:
    """Return what a reader should see of the shortcodes in a text: titles, captions and the like."""
    return SHORTCODE.sub(_shown_arguments, source)


def _shown_arguments(match: re.Match[str]) -> str:
    named = _NAMED_ARGUMENT.findall(match[1])
    if not named:
        return shortcode_arguments(match)
    shown = [one or other for name, one, other in named if name.lower() in _SHOWN_ARGUMENTS]
    texts = (strip_markup(text.replace("`", "")).strip(" .") for text in dict.fromkeys(shown))
    return ". ".join(filter(None, texts))


def _line_text(line: str, unquoted: str) -> str | None:
    """Return the text of a line outside code and tables; None if it has none, like a rule."""
    if not line.strip():
        return ""
    if callout := _CALLOUT.fullmatch(line):
        *names, title = callout.groups()
        name = next(filter(None, names)).replace("-", " ").capitalize()
        text = _inline_text(title).strip(' "')
        return f"{name}: {text}" if text else f"{name}:"
    if _SITE_LINE.fullmatch(line) or _RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return None
    if heading := _HEADING.fullmatch(unquoted):
        return _inline_text(heading[1]).strip()
    item = _ITEM.match(unquoted)
    before = ""
    if item:
        box = {None: "•", " ": "☐"}.get(item[2], "☑")
        before, unquoted = f"{item[1]}{box} ", unquoted[item.end() :]
    text = _inline_text(unquoted.rstrip().removesuffix("\\")).rstrip()
    return before + text if text.strip() else None


def _inline_text(text: str) -> str:
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[2].strip() or match[2])
        return f"\x00{len(kept) - 1}\x05"

    text = _CODE_SPAN.sub(keep, text.replace("\x00", "\ufffd")) if "`" in text else text
    for pattern, replacement in _INLINE_MARKUP:
        text = pattern.sub(replacement, text)
    text = shortcode_text(text) if "{{" in text else text
    text = _ESCAPED.sub(r"\1", _SPACES.sub(" ", strip_markup(text)))
    text = unescape(text) if "&" in text else text
    return _KEPT_CODE.sub(lambda match: kept[int(match[1])], text) if kept else text


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.replace("\\|", "|") for cell in _CELL_END.split(inner)]


def _aligned(table: list[list[str]]) -> list[str]:
    """Return the rows of a table with their cells in columns, or separated by dots if that is too wide."""
    rows = [[cell.replace("\n", " ") for cell in row] for row in table]
    widths = [
        max(len(row[column]) for row in rows if column < len(row))
        for column in range(max(map(len, rows)))
    ]
    if sum(widths) + 2 * len(widths) > _TABLE_WIDTH:
        return [" · ".join(filter(None, row)) for row in rows]
    columns = [
        [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] for row in rows
    ]
    return ["  ".join(row).rstrip() for row in columns]


def _without_comments(markdown: str) -> str:
    kept, at = [], 0
    for start, end in comment_spans(markdown):
        kept.append(markdown[at:start])
        at = end
    return "".join(kept) + markdown[at:]
