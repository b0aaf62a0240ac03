"""Strip markup from a passage, find comments in a document, and build the text that is embedded for a passage."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from marklight.model import Chunk, trail

_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]]{0,2000})\]\([^()\s]{0,2000}(?:\s\"[^\"\n]{0,500}\")?\)")
_WIKILINK = re.compile(r"!?\[\[([^\[\]|\n]{1,500})(?:\|([^\[\]\n]{0,500}))?\]\]")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*)((?:\s[^<>]{0,2000})?/?)>")
_CLOSING = re.compile(r"</([A-Za-z][\w.:-]*)\s*>")
_VOID = frozenset(("br", "hr", "wbr"))
_LAYOUT = frozenset(
    "a b blockquote center dd details div dl dt em figcaption figure font h1 h2 h3 h4 h5 h6 i img kbd li "
    "ol p pre small span strong sub summary sup table tbody td tfoot th thead tr u ul".split()
)
"""HTML elements that are stripped even if the passage ends before they are closed; few are placeholders, like `<pod>`."""
SHORTCODE = re.compile(r"\{\{[<%]([^{}]{0,2000})[>%]\}\}")
_QUOTED = re.compile(r'"([^"\n]{1,500})"')
_TEXT_ARGUMENT = re.compile(r'\btext\s*=\s*"([^"\n]{1,500})"')
_CODE_MARK = re.compile(r"`+|~~~+|\n[ \t]*\n")
_BEFORE_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?")
_MAX_FENCE_INDENT = 64
"""Characters before a fence on its line, block quotes and list items included. Hand-set; not measured."""
_NOT_NEWLINE = re.compile(r"[^\n]")
_SPACE_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n)*")
_MAX_INDENT = 64
"""White space before a comment on its line; one after more is not alone on its line."""
_COMMENT_MARK = re.compile(r"(?<!\\)%%|<!--")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_HTML_COMMENT_END = re.compile("-->")
_COMMENT_END = re.compile("%%")
_COMMENT_BLOCK_END = re.compile(r"%%(?=[ \t]*(?:\n|$))")
_MASK = str.maketrans("<[]{", "\x01\x02\x03\x04")
"""Markup characters and what replaces them inside code: ASCII, so that Python stores one byte per character."""


def strip_markup(markdown: str) -> str:
    """Return a passage without link targets, tags and shortcodes; quoted shortcode arguments are kept.

    Code stays unchanged, and so does what only looks like a tag: `vector<int>`, `delete <pod>`.
    """
    text = markdown
    if "<" not in text and "[" not in text and "{{" not in text:
        return text
    if has_code := "`" in text or "~~~" in text:
        text = _mask_code(text)
    if "{{" in text:
        # Before links and tags: `{{<name` looks like a tag, and a link target may be `{{< ref >}}`.
        text = SHORTCODE.sub(shortcode_arguments, text)
    if "](" in text:
        text = _IMAGE_OR_LINK.sub(r"\1", text)
    if "[[" in text:
        text = _WIKILINK.sub(lambda match: match[2] or match[1], text)
    if "<" in text:
        text = _without_tags(_without_comments(text))
    if has_code:
        for character, mask in _MASK.items():
            text = text.replace(chr(mask), chr(character))
    return text


def embedding_text(title: str, headings: Iterable[str], text: str) -> str:
    """Return the text that is embedded for a passage: its title and headings, a blank line, then its plain text."""
    return f"{trail(title, headings)}\n\n{strip_markup(text)}"


def chunk_embedding_text(chunk: Chunk) -> str:
    """Return the text that is embedded for this chunk."""
    return embedding_text(chunk.title, chunk.headings, chunk.own_text)


def comment_spans(markdown: str, first: int = 0) -> list[tuple[int, int]]:
    """Return the spans of closed HTML comments and Obsidian comments (`%% … %%`) outside of code, from an offset on.

    An Obsidian comment that begins a line may have several paragraphs and ends a line; another ends in its own paragraph.
    """
    if "%%" not in markdown and "<!--" not in markdown:
        return []
    code = _code_spans(markdown)
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    at, number = first, 0
    while mark := _COMMENT_MARK.search(markdown, at):
        at = mark.end()
        while number < len(code) and code[number][1] <= mark.start():
            number += 1
        if number < len(code) and code[number][0] <= mark.start():
            at = code[number][1]
        elif (end := _comment_end(markdown, mark, unclosed)) is not None:
            spans.append((mark.start(), end))
            at = end
    return spans


def without_comments(text: str, body: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text with blanks in place of comments, and the spans to leave out of passages."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    at = 0
    for start, end in comment_spans(text, body):
        parts += [text[at:start], _NOT_NEWLINE.sub(" ", text[start:end])]
        at = end
        space = _SPACE_LINES.match(text, end)
        before = text[max(0, start - _MAX_INDENT) : start].rpartition("\n")[2]
        alone = not before.strip() and len(before) < _MAX_INDENT
        spans.append((start, space.end() if space and alone else end))
    return ("".join((*parts, text[at:])) if spans else text), tuple(spans)


def _comment_end(text: str, mark: re.Match[str], unclosed: set[str]) -> int | None:
    """Return the end of a comment; `unclosed` are the ends that do not occur in the rest, so that none is searched twice."""
    start = mark.end()
    if mark[0] == "<!--":
        return _find_end(text, _HTML_COMMENT_END, start, unclosed)
    end = _find_end(text, _COMMENT_END, start, unclosed)
    if end is None or text.find("\n", start, end) < 0:
        return end
    if _begins_line(text, mark.start()):
        return _find_end(text, _COMMENT_BLOCK_END, start, unclosed)
    return None if _PARAGRAPH_END.search(text, start, end) else end


def _find_end(text: str, end: re.Pattern[str], start: int, unclosed: set[str]) -> int | None:
    match = end.search(text, start) if end.pattern not in unclosed else None
    if match is None:
        unclosed.add(end.pattern)
    return match.end() if match else None


def _mask_code(text: str) -> str:
    """Replace markup characters inside code; code is not cut out, as it may be the text of a link."""
    kept: list[str] = []
    at = 0
    for start, end in _code_spans(text):
        kept += [text[at:start], text[start:end].translate(_MASK)]
        at = end
    return "".join(kept) + text[at:]


def _code_spans(text: str) -> list[tuple[int, int]]:
    """Return the spans of fenced code, and of inline code between backtick runs of equal length in a paragraph."""
    spans: list[tuple[int, int]] = []
    runs: list[tuple[int, re.Match[str]]] = []
    paragraph, fence, start = 0, "", 0
    for mark in _CODE_MARK.finditer(text):
        characters = mark[0]
        if characters[0] == "\n":
            paragraph += 1
        elif len(characters) >= 3 and _begins_line(text, mark.start()):
            line_end = text.find("\n", mark.end())
            rest = text[mark.end() : line_end if line_end >= 0 else len(text)]
            if fence:
                if characters.startswith(fence) and not rest.strip():
                    spans.append((start, mark.start()))
                    fence = ""
            elif characters[0] == "~" or "`" not in rest:
                paragraph, fence, start = paragraph + 1, characters, mark.end()
            else:
                runs.append((paragraph, mark))
        elif not fence and characters[0] == "`":
            runs.append((paragraph, mark))
    if fence:
        spans.append((start, len(text)))
    return sorted([*spans, *_inline_code(runs)])


def _begins_line(text: str, at: int) -> bool:
    earliest = max(0, at - _MAX_FENCE_INDENT)
    line = text.rfind("\n", earliest, at) + 1
    return (line > 0 or earliest == 0) and bool(_BEFORE_FENCE.fullmatch(text, line, at))


def _inline_code(runs: list[tuple[int, re.Match[str]]]) -> Iterator[tuple[int, int]]:
    # Match closing runs from the end: a forward search from each run would be quadratic.
    partner: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        paragraph, mark = runs[number]
        key = (paragraph, len(mark[0]))
        if key in last:
            partner[number] = last[key]
        last[key] = number
    number = 0
    while number < len(runs):
        end = partner.get(number)
        if end is not None:
            yield runs[number][1].end(), runs[end][1].start()
        number = number + 1 if end is None else end + 1


def _without_tags(text: str) -> str:
    closed = frozenset(_CLOSING.findall(text))

    def replacement(match: re.Match[str]) -> str:
        closing, name, attributes = match.groups()
        follows_word = match.start() > 0 and text[match.start() - 1].isalnum()
        complete = attributes.endswith("/") or "=" in attributes or name.lower() in _VOID
        layout = name.lower() in _LAYOUT and not follows_word and not attributes
        markup = closing or name in closed or complete or layout
        return " " if markup else match[0]

    return _TAG.sub(replacement, text)


def shortcode_arguments(match: re.Match[str]) -> str:
    """Return what a shortcode displays: its `text` argument, else all quoted arguments, but no link target."""
    inner = match[1].strip()
    if inner.startswith(("ref ", "relref ", "include ")):
        return ""
    shown = _TEXT_ARGUMENT.search(inner)
    return shown[1] if shown else " ".join(_QUOTED.findall(inner))


def _without_comments(text: str) -> str:
    # Not by a regular expression: it would search the end of every unclosed comment anew, which is quadratic.
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[at:start])
        at = end + 3
    return "".join(kept) + text[at:]
