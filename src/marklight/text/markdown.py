"""Markdown as text: without markup for embedding, readable for people, comments, names of code languages."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from marklight.lazy import lazy_pattern
from marklight.model import Chunk, digest, trail, without_spans
from marklight.text.analyzer import data_lines
from marklight.text.lines import DELIMITER_ROW

_IMAGE_OR_LINK = lazy_pattern(
    r"!?\[([^\[\]]{0,2000})\]\([^()\s]{0,2000}(?:\s\"[^\"\n]{0,500}\")?\)"
)
_WIKILINK = lazy_pattern(r"!?\[\[([^\[\]|\n]{1,500})(?:\|([^\[\]\n]{0,500}))?\]\]")
_TAG = lazy_pattern(r"<([A-Za-z][\w.:-]*)((?:\s[^<>]{0,2000})?)>")
_CERTAIN_TAG = lazy_pattern(
    r"<(?:/[A-Za-z][\w.:-]*(?:\s[^<>]{0,2000})?/?"
    r"|[A-Za-z][\w.:-]*(?:(?=\s[^<>=]{0,1999}=)\s[^<>]{0,2000}/?|(?:\s[^<>]{0,2000})?/?(?<=/)))>"
)
"""A tag whatever the text around it: a closing one, one with attributes, or one that closes itself."""
_CLOSING = lazy_pattern(r"</([A-Za-z][\w.:-]*)\s*>")
_VOID = frozenset(("br", "hr", "wbr"))
_LAYOUT = frozenset(
    "a b blockquote center dd details div dl dt em figcaption figure font h1 h2 h3 h4 h5 h6 i img kbd li "
    "ol p pre small span strong sub summary sup table tbody td tfoot th thead tr u ul".split()
)
"""HTML elements that are stripped even if the passage ends before they are closed; few are placeholders, like `<pod>`."""
SHORTCODE = lazy_pattern(r"\{\{[<%]([^{}]{0,2000})[>%]\}\}")
_QUOTED = lazy_pattern(r'"([^"\n]{1,500})"')
_TEXT_ARGUMENT = lazy_pattern(r'\btext\s*=\s*"([^"\n]{1,500})"')
_FENCE_MARK = lazy_pattern("```+|~~~+")
_BACKTICK_FENCE_MARK = lazy_pattern("```+")
_RUN_OR_PARAGRAPH_END = lazy_pattern(r"`+|\n[ \t]*\n")
_BEFORE_FENCE = lazy_pattern(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?")
_MAX_FENCE_INDENT = 64
"""Characters before a fence on its line, block quotes and list items included. Hand-set; not measured."""
_NOT_NEWLINE = lazy_pattern(r"[^\n]")
_SPACE_LINES = lazy_pattern(r"[ \t]*\n(?:[ \t]*\n)*")
_MAX_INDENT = 64
"""White space before a comment on its line; one after more is not alone on its line."""
_COMMENT_MARKS = {
    "%%": r"(?<!\\)%%",
    "<!--": "<!--",
    "{%": r"(?<!\{)\{%[^{}]{1,2000}?%\}(?!\})",
    "{#": r"\{#[^{}]{1,2000}?#\}",
    "\nimport ": r"(?m:^import [^'\"\n]{0,500}(['\"])[^'\"\n]{1,500}\1;?[ \t]*$)",
    "[AUTOTITLE": r"(?<=\[)AUTOTITLE(?=\]\()",
    "-8<-": r"(?m:^[ \t]*-+8<-+[ \t]+\"[^\"\n]{1,500}\"[ \t]*$)",
}
"""By its first characters, the pattern of the beginning of a comment, or of a whole template directive: tags of Liquid and Jinja
(`{% include x %}`), comments of Jinja, imports of MDX, snippets of MkDocs, and GitHub's placeholder for the title of a link's target.
What they print is not in the file, and what they enclose is text."""
_VARIABLE = lazy_pattern(r"\{%-?\s*data\s+variables\.(?:[\w-]{1,99}\.){0,9}([\w-]{1,99})\s*-?%\}")
"""A variable of GitHub's documentation. Its name is text, since it stands for a name: `prodname_copilot`."""
_PARAGRAPH_END = lazy_pattern(r"\n[ \t]*\n")
_HTML_COMMENT_END = lazy_pattern("-->")
_COMMENT_END = lazy_pattern("%%")
_COMMENT_BLOCK_END = lazy_pattern(r"%%(?=[ \t]*(?:\n|$))")
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
        text = _without_tags(_without_html_comments(text))
    if has_code:
        for character, mask in _MASK.items():
            text = text.replace(chr(mask), chr(character))
    return text


def embedding_text(title: str, headings: Iterable[str], text: str) -> str:
    """Return the text that is embedded for a passage: its title and headings, a blank line, then its plain text."""
    return f"{trail(title, headings)}\n\n{strip_markup(text)}"


def embedding_digest(title: str, headings: Iterable[str], text: str) -> str:
    """Return the digest of the text that is embedded for a passage: 64 bits, as six columns of an index contain it."""
    return digest(embedding_text(title, headings, text), size=8)


def chunk_embedding_text(chunk: Chunk) -> str:
    """Return the text that is embedded for this chunk."""
    return embedding_text(chunk.title, chunk.headings, chunk.own_text)


def comment_spans(markdown: str, first: int = 0) -> list[tuple[int, int]]:
    """Return the spans of closed HTML comments, Obsidian comments (`%% … %%`) and template directives outside of code, from an offset on.

    An Obsidian comment that begins a line may have several paragraphs and ends a line outside of code; another ends in its own paragraph.
    """
    marks = [pattern for start, pattern in _COMMENT_MARKS.items() if start in markdown]
    if _COMMENT_MARKS["{%"] in marks and markdown.count("{%") == markdown.count("{{%"):
        marks.remove(_COMMENT_MARKS["{%"])  # shortcodes of Hugo
    if not marks:
        return []
    fences, inline = _fences(markdown), list[tuple[int, int]]()
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    offset, number, paragraph_end = first, 0, 0
    # Only those that occur: a literal is found in a tenth of the time.
    any_mark = re.compile("|".join(marks))
    while mark := any_mark.search(markdown, offset):
        start, offset = mark.span()
        while number < len(fences) and fences[number][1] <= start:
            number += 1
        if number < len(fences) and fences[number][0] <= start:
            offset = fences[number][1]
            continue
        if start >= paragraph_end:
            before = fences[number - 1][1] if number else 0
            end = fences[number][0] if number < len(fences) else len(markdown)
            paragraph = max(before, markdown.rfind("\n\n", before, start))
            blank = markdown.find("\n\n", start, end)
            paragraph_end = blank if blank >= 0 else end
            inline = [*_inline_code(markdown, paragraph, paragraph_end)][::-1]
        while inline and inline[-1][1] <= start:
            inline.pop()
        if inline and inline[-1][0] <= start:
            offset = inline[-1][1]
        elif (comment_end := _comment_end(markdown, mark, fences, unclosed)) is not None:
            variable = _VARIABLE.match(markdown, start, comment_end)
            name = variable.span(1) if variable else (comment_end, comment_end)
            spans += [
                span for span in ((start, name[0]), (name[1], comment_end)) if span[0] < span[1]
            ]
            offset = comment_end
    return spans


def without_comments(text: str, body: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text with blanks in place of comments, and the spans to leave out of passages."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    offset = 0
    for start, end in comment_spans(text, body):
        parts += [text[offset:start], _NOT_NEWLINE.sub(" ", text[start:end])]
        offset = end
        space = _SPACE_LINES.match(text, end)
        before = text[max(0, start - _MAX_INDENT) : start].rpartition("\n")[2]
        alone = not before.strip() and len(before) < _MAX_INDENT
        spans.append((start, space.end() if space and alone else end))
    return ("".join((*parts, text[offset:])) if spans else text), tuple(spans)


def table_padding(text: str, start: int, rows: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of a table that only align its source: blanks beyond one around a cell, dashes beyond three."""
    for pattern, first, last in ((_CELL_PADDING, start, end), (_DASHES, start, rows)):
        yield from (match.span() for match in pattern.finditer(text, first, last))


def compact_row(line: str) -> str:
    """Return a row of a table without the padding of its source."""
    rule = len(line) if DELIMITER_ROW.fullmatch(line) else 0
    return without_spans(line, sorted(table_padding(line, 0, rule, len(line))))


def _comment_end(
    text: str, mark: re.Match[str], fences: list[tuple[int, int]], unclosed: set[str]
) -> int | None:
    """Return the end of a comment; `unclosed` are the ends that do not occur in the rest, so that none is searched twice."""
    start = mark.end()
    if mark[0] not in ("<!--", "%%"):
        return start
    if mark[0] == "<!--":
        return _find_end(text, _HTML_COMMENT_END, start, unclosed)
    end = _find_end(text, _COMMENT_END, start, unclosed)
    if end is None or text.find("\n", start, end) < 0:
        return end
    if _begins_line(text, mark.start()):
        while (end := _find_end(text, _COMMENT_BLOCK_END, start, unclosed)) is not None:
            fence = bisect(fences, (end, end)) - 1
            if fence < 0 or fences[fence][1] < end:
                break
            start = fences[fence][1]  # in the comments of Mermaid
        return end
    return None if _PARAGRAPH_END.search(text, start, end) else end


def _find_end(text: str, end: re.Pattern[str], start: int, unclosed: set[str]) -> int | None:
    match = end.search(text, start) if end.pattern not in unclosed else None
    if match is None:
        unclosed.add(end.pattern)
    return match.end() if match else None


def _mask_code(text: str) -> str:
    """Replace markup characters inside code; code is not cut out, as it may be the text of a link."""
    kept: list[str] = []
    offset = 0
    for start, end in _code_spans(text):
        kept += [text[offset:start], text[start:end].translate(_MASK)]
        offset = end
    return "".join(kept) + text[offset:]


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Return the spans of fenced code, and of inline code outside of it, in order."""
    offset = 0
    for start, end in _fences(text):
        yield from _inline_code(text, offset, start)
        yield start, end
        offset = end
    yield from _inline_code(text, offset, len(text))


def _fences(text: str) -> list[tuple[int, int]]:
    """Return the spans of fenced code, with the fences."""
    spans: list[tuple[int, int]] = []
    fence, start = "", 0
    marks = _FENCE_MARK if "~~~" in text else _BACKTICK_FENCE_MARK
    for mark in marks.finditer(text):
        if not _begins_line(text, mark.start()):
            continue
        line_end = text.find("\n", mark.end())
        rest = text[mark.end() : line_end if line_end >= 0 else len(text)]
        if not fence and (mark[0][0] == "~" or "`" not in rest):
            fence, start = mark[0], mark.start()
        elif fence and mark[0].startswith(fence) and not rest.strip():
            spans.append((start, mark.end()))
            fence = ""
    return [*spans, (start, len(text))] if fence else spans


def _begins_line(text: str, offset: int) -> bool:
    earliest = max(0, offset - _MAX_FENCE_INDENT)
    line = text.rfind("\n", earliest, offset) + 1
    return (line > 0 or earliest == 0) and bool(_BEFORE_FENCE.fullmatch(text, line, offset))


def _inline_code(text: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Return the spans of inline code between backtick runs of equal length in a paragraph."""
    if text.find("`", first, last) < 0:
        return
    runs: list[tuple[int, int, int]] = []
    paragraph = 0
    for mark in _RUN_OR_PARAGRAPH_END.finditer(text, first, last):
        start, end = mark.span()
        if text[start] == "`":
            runs.append((paragraph, start, end))
        else:
            paragraph += 1
    # Match closing runs from the end: a forward search from each run would be quadratic.
    partner: dict[int, int] = {}
    nearest: dict[tuple[int, int], int] = {}
    for number in range(len(runs) - 1, -1, -1):
        paragraph, start, end = runs[number]
        key = (paragraph, end - start)
        if key in nearest:
            partner[number] = nearest[key]
        nearest[key] = number
    number = 0
    while number < len(runs):
        if (closing := partner.get(number)) is not None:
            yield runs[number][2], runs[closing][1]
            number = closing
        number += 1


def _without_tags(text: str) -> str:
    closed = frozenset(_CLOSING.findall(text))
    text = _CERTAIN_TAG.sub(" ", text)

    def replacement(match: re.Match[str]) -> str:
        name, attributes = match.groups()
        follows_word = match.start() > 0 and text[match.start() - 1].isalnum()
        layout = name.lower() in _LAYOUT and not follows_word and not attributes
        return " " if name in closed or layout or name.lower() in _VOID else match[0]

    return _TAG.sub(replacement, text)


def shortcode_arguments(match: re.Match[str]) -> str:
    """Return what a shortcode displays: its `text` argument, else all quoted arguments, but no link target."""
    inner = match[1].strip()
    if inner.startswith(("ref ", "relref ", "include ", "readfile ")):
        return ""
    shown = _TEXT_ARGUMENT.search(inner)
    return shown[1] if shown else " ".join(_QUOTED.findall(inner))


def language_names(language: str) -> tuple[str, ...]:
    """Return all names of a programming language in code fences, such as `py` and `python3`; the given one included."""
    name = language.lower()
    return _code_languages().get(name, (name,))


@cache
def _code_languages() -> dict[str, tuple[str, ...]]:
    groups = [tuple(line.split()) for line in data_lines("code_languages.txt")]
    return {name: group for group in groups for name in group}


def _without_html_comments(text: str) -> str:
    # Not by a regular expression: it would search the end of every unclosed comment anew, which is quadratic.
    kept: list[str] = []
    offset = 0
    while (start := text.find("<!--", offset)) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[offset:start])
        offset = end + 3
    return "".join(kept) + text[offset:]


_EMBED = lazy_pattern(r"!\[\[[^\[\]\n]{1,500}\]\]")
_NAMED_ARGUMENT = lazy_pattern(
    r"""\b([\w-]+)\s*=\s*(?:"([^"\n]{0,500})"|'([^'\n]{0,500})'|[^\s"']\S{0,500})"""
)
_SHOWN_ARGUMENTS = frozenset("alt caption description heading label summary text title".split())
"""Named arguments of shortcodes that contain text for readers, as in Hugo's own `figure`."""
_FENCE = lazy_pattern(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(`{3,}|~{3,})([^`\n]*)$")
_CODE_SPAN = lazy_pattern(r"(?<!`)(`{1,3})(?!`)([^\n]{1,500}?)(?<!`)\1(?!`)")
_KEPT_CODE = lazy_pattern("\x00(\\d+)\x05")
_CALLOUT = lazy_pattern(
    r"[ \t]*(?:(?:>[ \t]*)+\[!([\w-]+)(?:\|[^\]\n]*)?\][+-]?|[!?]{3}\+?[ \t]+(\w+)|:{3,}[ \t]*\{?(\w+)\}?|/{3,}[ \t]+(\w+))[ \t|]*(.*)"
)
"""Callouts of Obsidian and GitHub, admonitions of MkDocs, Docusaurus and Material."""
_SITE_LINE = lazy_pattern(r"[ \t]*(?:/{3,}|:{3,}|\{\*.*\*\}|\{%.*%\})[ \t]*")
"""Ends of admonitions, and includes of documentation sites."""
_RULE = lazy_pattern(r"[ \t]*(?:(?:[-*_][ \t]*){3,}|=+)")
_CELL_PADDING = lazy_pattern(
    r"(?<=\S[ \t])[ \t]+(?=\||$)|(?<=\|[ \t])(?<!\\\|[ \t])[ \t]+", re.MULTILINE
)
_DASHES = lazy_pattern(r"(?<=---)-+(?=[ \t:|]*$|[ \t]*:?[ \t]*\|)", re.MULTILINE)
_CELL_END = lazy_pattern(r"(?<!\\)\|")
_QUOTE_MARKS = lazy_pattern(r"[ \t]{0,3}(?:>[ \t]?)+")
_HEADING = lazy_pattern(r"[ \t]{0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_ITEM = lazy_pattern(r"([ \t]*)[-*+][ \t]+(?:\[([ xX])\][ \t]+)?")
_STARTS_LINE = lazy_pattern(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]|[ \t]{0,3}#{1,6}[ \t]")
_ENDS_LINE = lazy_pattern(r"(?:\\|  |<br[ \t]*/?>)$|^[ \t>]{0,9}#{1,6}[ \t]", re.IGNORECASE)
"""A hard line end, or a heading."""
_DEFINITION = lazy_pattern(r"[ \t]{0,3}\[(?!\^)[^\]\n]{1,200}\]:[ \t]*\S+.*")
_INLINE_MARKUP = (
    (  # a link with brackets in its text, [@robot[bot]](…)
        lazy_pattern(
            r"(?<!!)\[([^\[\]\n]{0,300}\[[^\[\]\n]{1,100}\][^\[\]\n]{0,300})\]\([^()\s]{1,2000}\)"
        ),
        r"\1",
    ),
    (lazy_pattern(r"<((?:https?://|mailto:)[^<>\s]{1,2000})>"), r"\1"),
    (
        lazy_pattern(
            r"<(a|abbr|b|cite|code|del|dfn|em|i|ins|kbd|mark|q|s|samp|small|span|strong|sub|sup|tt|u|var)"
            r"(?:\s[^<>]{0,500})?>([^<>]{0,500})</\1>"
        ),
        r"\2",
    ),
    (lazy_pattern(r"<br[ \t]*/?>", re.IGNORECASE), "\n"),
    (lazy_pattern(r"!\[\[[^\[\]|\n]{1,500}#icon[^\[\]\n]{0,100}\]\] ?"), ""),  # an icon is no word
    (lazy_pattern(r"!\[\[([^\[\]|\n]{1,500})\|[\dx]+\]\]"), r"\1"),  # without the size of an image
    (lazy_pattern(r"(?<!!)\[([^\[\]\n]{1,500})\]\[[^\[\]\n]{0,200}\]"), r"\1"),
    (
        lazy_pattern(r"(?<![\\\w])(\*\*\*|___|\*\*|__|~~|==)(?=\S)([^\n]{1,300}?)(?<=\S)\1(?!\w)"),
        r"\2",
    ),
    (lazy_pattern(r"(?<![\\\w*_])([*_])(?=[^\s*_])([^*_\n]{1,300}?)(?<=\S)\1(?![\w*_])"), r"\2"),
    (lazy_pattern(r"[ \t]*\{[ \t]?[#:][^{}\n]{0,200}\}|[ \t]\^[A-Za-z0-9-]+$", re.MULTILINE), ""),
)
_NEEDED_CHARACTERS = ("[", "<", "<", "<", "[", "[", "[", "*_~=", "*_", "{^")
"""For each of these patterns, characters of which a text must contain one."""
_MARKUP_CHARACTER = lazy_pattern(r"[<\[*_~={^\\`&\x00]")
"""Every pattern of `_inline_text` but that of spaces needs one of these."""
_LINK_START = lazy_pattern(r"\A([^\[\]]{0,1000})\]\([^()\s]{0,2000}(?:\s\"[^\"\n]{0,500}\")?\)")
"""The end of a link whose beginning is in another passage."""
_LINK_END = lazy_pattern(r"!?\[([^\[\]]{0,1000})\]\([^()\s]{0,2000}\Z")
"""The beginning of a link at the end of a passage."""
_LINK_OVER_LINES = lazy_pattern(r"\[[^\[\]\n]{0,300}\n[^\[\]\n]{0,300}\]\(")
_TASK = lazy_pattern(
    r"^[ \t>]{0,40}(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}\[([ xX])\][ \t]+(\S[^\n]{0,2000})", re.MULTILINE
)
_SPACES = lazy_pattern(r"(?<=\S) {2,}(?=\S)")
_ESCAPED = lazy_pattern(r"\\([!-/:-@\[-`{-~])")
_TABLE_WIDTH = 100
"""Wider tables are not aligned: their rows would not fit a line."""


def readable(markdown: str, *, reflow: bool = False) -> str:
    """Return a passage as text for people: no markup, aligned tables; lines and code stay.

    `reflow` joins the lines of a paragraph, up to a hard line end, and drops blank lines outside code. Only a passage
    that is nothing but markup is returned unchanged.
    """
    lines, table = list[str](), list[list[str]]()
    fence, joins = "", False  # joins: the line continues a paragraph
    shown = without_spans(markdown, comment_spans(markdown))
    for line in [*_with_whole_links(shown).split("\n"), ""]:
        plain = line[:1].isalpha()  # as most lines: without a mark at its beginning
        mark = None if plain else _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
            else:
                lines.append(line)
            continue
        quote = None if plain else _QUOTE_MARKS.match(line)
        callout = None if plain else _CALLOUT.fullmatch(line)
        unquoted = line[quote.end() :] if quote else line
        is_row = unquoted.lstrip().startswith("|") and unquoted.count("|") > 1
        if table and not is_row:
            lines += _aligned(table)
            table = []
        continues = joins and not callout and (plain or not _STARTS_LINE.match(unquoted))
        joins = False
        if mark:
            fence = mark[1]
        elif is_row:
            if not DELIMITER_ROW.fullmatch(line):
                table.append([_inline_text(cell).strip() for cell in _cells(unquoted)])
        elif (text := _line_text(line, unquoted, callout)) is not None and (
            text or (lines and lines[-1])
        ):
            if not reflow:
                lines.append(text)
            elif text:
                may_end = line[-1] in "\\ >" or "#" in line
                joins = not (callout or (may_end and _ENDS_LINE.search(line)))
                lines[-1:] = [f"{lines[-1]} {text.strip()}"] if continues else [*lines[-1:], text]
    text = "\n".join(lines).strip("\n")
    return text if text.strip() else markdown.strip()


def _with_whole_links(markdown: str) -> str:
    """Join the lines of a link text, and drop what is left of links that the ends of a passage cut in two."""
    if "](" not in markdown:
        return markdown
    text = _mask_code(markdown) if "`" in markdown or "~~~" in markdown else markdown
    text = _LINK_END.sub(r"\1", _LINK_START.sub(r"\1", text))
    text = _LINK_OVER_LINES.sub(lambda match: " ".join(match[0].split()), text)
    for character, mask in _MASK.items():
        text = text.replace(chr(mask), chr(character))
    return text


class Task(NamedTuple):
    """An item of a task list, `- [ ]` or `- [x]`."""

    line: int
    """Its line, starting at 1."""
    text: str
    """Its text, without markup."""
    done: bool

    @property
    def state(self) -> str:
        """Return `open` or `done`, the values of the filter `task:`."""
        return "done" if self.done else "open"


def find_tasks(markdown: str) -> list[Task]:
    """Return the tasks of a document outside of code and comments."""
    if "[ ]" not in markdown and "[x]" not in markdown and "[X]" not in markdown:
        return []
    hidden = sorted([*_code_spans(markdown), *comment_spans(markdown)])
    tasks: list[Task] = []
    line, offset = 1, 0
    for match in _TASK.finditer(markdown):
        line += markdown.count("\n", offset, match.start(1))
        offset = match.start(1)
        if not any(start <= offset < end for start, end in hidden):
            tasks.append(Task(line, _inline_text(match[2]).strip(), match[1] != " "))
    return tasks


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


def _line_text(line: str, unquoted: str, callout: re.Match[str] | None) -> str | None:
    """Return the text of a line outside code and tables; None if it has none, like a rule."""
    if not line.strip():
        return ""
    if line[0].isalpha():
        return _inline_text(line.rstrip().removesuffix("\\")).rstrip() or None
    if callout:
        *names, title = callout.groups()
        name = next(filter(None, names)).replace("-", " ").capitalize()
        text = _inline_text(title).strip(' "')
        return f"{name}: {text}" if text else f"{name}:"
    if _SITE_LINE.fullmatch(line) or _RULE.fullmatch(line) or _DEFINITION.fullmatch(line):
        return None
    if heading := _HEADING.fullmatch(unquoted):
        return _inline_text(heading[1]).strip()
    before = ""
    if item := _ITEM.match(unquoted):
        box = {None: "•", " ": "☐"}.get(item[2], "☑")
        before, unquoted = f"{item[1]}{box} ", unquoted[item.end() :]
    text = _inline_text(unquoted.rstrip().removesuffix("\\")).rstrip()
    return before + text if text.strip() else None


def _inline_text(text: str) -> str:
    if not _MARKUP_CHARACTER.search(text):  # most lines
        return _SPACES.sub(" ", text) if "  " in text else text
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[2].strip() or match[2])
        return f"\x00{len(kept) - 1}\x05"

    text = _CODE_SPAN.sub(keep, text.replace("\x00", "\ufffd")) if "`" in text else text
    marks = {*_MARKUP_CHARACTER.findall(text)}
    for characters, (pattern, replacement) in zip(_NEEDED_CHARACTERS, _INLINE_MARKUP, strict=True):
        if not marks.isdisjoint(characters):
            text = pattern.sub(replacement, text)
    text = strip_markup(shortcode_text(text) if "{{" in text else text)
    text = _SPACES.sub(" ", text) if "  " in text else text
    text = _ESCAPED.sub(r"\1", text) if "\\" in text else text
    if "&" in text:
        from html import unescape  # few texts need its table of entities

        text = unescape(text)
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
