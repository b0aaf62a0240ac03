"""Escape and quote text of documents; format places, passages and answers as plain text and HTML.

Text of a document is untrusted. Three functions keep it apart from the lines that Marklight writes itself:

- `visible` escapes characters that control a terminal, reorder text or hide it, as `\\x1b` or `\\u202e`.
- `one_line` also escapes line breaks, for a name, title or message within a line.
- `quoted` puts `> ` before every line. No line of ours begins with `>`, so no text can pose as one.

`escape_json` escapes the same characters in serialised JSON; the values stay equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.lazy import dataclass, lazy_pattern

if TYPE_CHECKING:
    # Types only: `--help` needs the escaping functions and nothing else.
    from marklight.answer import Answer, Hit
    from marklight.model import Chunk, DocumentId
    from marklight.report import Extract

URI_ROOT = "marklight://docs/"
"""Beginning of the URIs of documents."""
QUOTE = "> "
"""Before every line of a document's text; an empty line is `>` alone."""

_ABOVE_ASCII = r"\x7f-\x9f\u2028\u2029"
"""DEL, C1, and the two separators that some programs treat as line breaks."""
_CONTROLS = rf"\x00-\x08\x0b-\x1f{_ABOVE_ASCII}"
"""The above and C0, without tab and newline."""
_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The property Bidi_Control. Hebrew and Arabic letters have their direction without it."""
_TAGS = r"\U000e0000-\U000e007f"
"""Invisible copies of ASCII: a model reads a prompt hidden in them, a person does not see it."""
_JOINERS = r"\u200c\u200d"
"""Persian, Indic scripts and emoji need them between two visible characters."""
_VARIATIONS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = (
    rf"{_JOINERS}{_VARIATIONS}\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065"
    r"\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
"""The rest of the property Default_Ignorable_Code_Point. After a visible character it is orthography;
after another one, or after a space, it may hide data."""
_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The only emoji made of tags that Unicode recommends: England, Scotland, Wales."""

_ALWAYS = f"[{_CONTROLS}{_BIDI}{_TAGS}]"
_HIDDEN = lazy_pattern(
    rf"({'|'.join(_FLAGS)})|{_ALWAYS}"
    # An emoji selector is followed by a joiner in sequences such as a heart on fire.
    rf"|(?:\A|(?<=[\s{_CONTROLS}{_BIDI}{_TAGS}{_INVISIBLE}]))(?!(?<=\ufe0f)\u200d)[{_INVISIBLE}]"
)
CONTROLS = lazy_pattern(rf"[\t\n{_CONTROLS}{_BIDI}]")
"""All control characters, with tab and newline, and those that reorder text."""
_TERMINAL_CONTROLS = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNSAFE_IN_JSON = lazy_pattern(f"[{_ABOVE_ASCII}{_BIDI}{_TAGS}]")
"""Every serialiser escapes C0 in strings; elsewhere it only separates values."""


def visible(text: str) -> str:
    """Escape control, bidirectional, tag and hidden characters; line breaks and tabs stay."""
    return _HIDDEN.sub(lambda match: match[0] if match[1] else _escape(match[0]), text)


def without_controls(text: str) -> str:
    """Escape C0, DEL and C1 only: text does not need them, and a pipe often ends at a terminal."""
    return _TERMINAL_CONTROLS.sub(lambda match: _escape(match[0]), text)


def one_line(text: str) -> str:
    """Escape line breaks and all invisible characters, so that a name stays within its line."""
    return "".join(map(_within_line, visible(text)))


def unescape(text: str) -> str:
    """Return a text with the characters in it that `one_line` escaped; a doubled backslash is one."""
    return _ESCAPED.sub(_unescaped, text) if "\\" in text else text


_ESCAPED = lazy_pattern(
    r"\\(?:(?P<sign>[\\ntr])|x(?P<x>[0-9a-f]{2})|u(?P<u>[0-9a-f]{4})|U(?P<U>00[01][0-9a-f]{5}))"
)
_SIGNS = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


def _unescaped(match: re.Match[str]) -> str:
    if match["sign"]:
        return _SIGNS[match["sign"]]
    code = int(match["x"] or match["u"] or match["U"], 16)
    # No document has NUL or a surrogate in its name.
    return chr(code) if code and not 0xD800 <= code <= 0xDFFF and code <= 0x10FFFF else match[0]


def quoted(text: str) -> str:
    """Put `> ` before every line of a document's text and escape hidden characters."""
    lines = visible(text).split("\n")
    return "\n".join(f"{QUOTE}{line}" if line else QUOTE.rstrip() for line in lines)


def escape_json(serialised: str) -> str:
    """Escape characters in serialised JSON that are not safe to print; the values stay equal."""
    import json

    return _UNSAFE_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], serialised)


def _within_line(character: str) -> str:
    # `visible` keeps joiners and selectors only where they belong; spaces of any width are visible.
    if character.isprintable() or _KEPT_WITHIN_LINE.match(character):
        return character
    return _escape(character)


_KEPT_WITHIN_LINE = lazy_pattern(
    rf"[{_INVISIBLE}{_TAGS}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]|[^\S\n\t]"
)
"""Also the visible Arabic and Syriac characters of the Unicode category Format."""


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


MAX_QUERY = 60
"""Characters of the query in the repr of an answer."""
MAX_SIMILAR = 3
"""Duplicates of a result whose places are listed below it."""
CLOSEST = "The closest passages:"
"""End of the line above passages of which none is likely to answer."""
NO_TEXT = "(this document has no text)"

_DROPPING_STAGES = {
    "after_threshold": "exact_duplicates",
    "after_same_text": "near_duplicates",
    "after_near_text": "semantic_duplicates",
    "after_same_meaning": "per_document",
    "after_doc_limit": "",
}
"""Counts in `stats`, each with the stage that follows and drops duplicates or passages of one document."""


def place_text(
    document: DocumentId,
    several_collections: bool = False,
    lines: Sequence[int] = (),
    fragment: str = "",
) -> str:
    """Return a place as all commands print and accept it: `guide/auth.md:120-148` or `guide/auth.md#token-refresh`.

    The collection comes first where there are several. `marklight.reference` parses a place.
    """
    name = _place_name(document.named(several_collections))
    if lines:
        return f"{name}:{'-'.join(map(str, lines))}"
    return f"{name}#{one_line(fragment)}" if fragment else name


def document_uri(document: DocumentId, several_collections: bool = False) -> str:
    """Return the URI of a document; with several collections, its collection is the first folder."""
    from urllib.parse import quote

    return URI_ROOT + quote(document.named(several_collections), safe="/", errors="replace")


def _place_name(name: str) -> str:
    """Escape a name so that `unescape` returns it, and that it does not contain a place of another document.

    A name that contains `:1-4 § ` would end there for a reader: its `§` is escaped.
    """
    if name == one_line(name) == unescape(name) and not _LINES_IN_NAME.search(name):
        return name
    escaped = one_line(name.replace("\\", "\\\\"))
    return _LINES_IN_NAME.sub(lambda match: match[0].replace("§", "\\xa7"), escaped)


_LINES_IN_NAME = lazy_pattern(r":\d+-\d+ §")


@dataclass(frozen=True, slots=True)
class Style:
    """Style text for the output: escape sequences on a terminal, plain text elsewhere."""

    escapes: bool = False
    """True if bold text and hyperlinks are written as escape sequences."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the collections, by name: the targets of hyperlinks."""
    address: str = ""
    """Hyperlink template with `{path}` and `{line}`; empty links to the file itself."""
    terminal: bool = False
    """True if the output goes to a terminal."""
    near: str = ""
    """The current folder, from which a path may also be written; empty if it does not matter."""

    def bold(self, text: str) -> str:
        """Return the text in bold."""
        return f"\x1b[1m{text}\x1b[0m" if self.escapes else text

    def dim(self, text: str) -> str:
        """Return the text dimmed."""
        return f"\x1b[2m{text}\x1b[0m" if self.escapes else text

    def match(self, text: str) -> str:
        """Return a word that matches the query, in bold red, as grep and ripgrep print it."""
        return self._colored(text, "1;31")

    def path(self, text: str) -> str:
        """Return the path of a result, in bold magenta."""
        return self._colored(text, "1;35")

    def lines(self, text: str) -> str:
        """Return line numbers, in green."""
        return self._colored(text, "32")

    def certainty(self, text: str, *, likely: bool) -> str:
        """Return how certain a result is, in green if it is likely."""
        return self._colored(text, "32") if likely else self.dim(text)

    def _colored(self, text: str, codes: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.escapes and text else text

    def link(self, text: str, document: DocumentId, line: int = 1) -> str:
        """Return the text as a hyperlink to a line of the document's file."""
        folder = self.folders.get(document.collection)
        if not self.escapes or folder is None:
            return text
        return hyperlink(text, folder / document.path, line, self.address)

    def place(self, text: str, document: DocumentId, line: int = 1) -> str:
        """Return a place as a hyperlink, with a slash before it if a file of the current folder has the same name."""
        return self.link(self.rooted(text, document), document, line)

    def rooted(self, text: str, document: DocumentId, *_: int) -> str:
        """Return a place with a slash before it if a file of the current folder has the same name."""
        folder = self.folders.get(document.collection)
        if not self.near or folder is None:
            return text
        here = os.path.join(self.near, place_text(document, len(self.folders) > 1))
        return f"/{text}" if _is_other_file(here, folder / document.path) else text

    def file(self, document: DocumentId) -> str:
        """Return the path of the document's file, relative if it is below the current folder.

        `./` is put before a path with a leading dash, so that no program takes it for an option, and before one
        that is also the name of another document in the library.
        """
        folder = self.folders.get(document.collection)
        if folder is None:
            return document.path
        file = folder / document.path
        try:
            relative = str(file.relative_to(Path.cwd()))
        except (ValueError, OSError):
            return str(file)
        owner, _, rest = unescape(relative).partition("/")
        several = len(self.folders) > 1
        names = {owner: rest} if several else dict.fromkeys(self.folders, unescape(relative))
        others = (
            os.path.join(self.folders[name], path)
            for name, path in names.items()
            if name in self.folders
        )
        shared = any(_is_other_file(other, file) for other in others)
        return f"./{relative}" if shared or relative.startswith("-") else relative


def _is_other_file(path: str, file: Path) -> bool:
    """Return true if a path is that of an existing file, and not of this one."""
    return os.path.isfile(path) and not os.path.samefile(path, file) if file.exists() else False


PLAIN = Style()


def hyperlink(text: str, file: Path, line: int = 1, address: str = "") -> str:
    """Return the text as an OSC 8 hyperlink; the host is empty, as the file is on this machine."""
    uri = file.absolute().as_uri()
    path = uri.removeprefix("file://")
    target = address.replace("{path}", path).replace("{line}", str(line)) if address else uri
    return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\"


def headed_place(
    piece: Chunk | Extract, several_collections: bool = False, style: Style = PLAIN
) -> str:
    """Return `guide/auth.md:120-148 § Auth > Token refresh`; the place may be a hyperlink."""
    from marklight.model import trail

    place = place_text(piece.document, several_collections, piece.lines)
    where = style.place(place, piece.document, piece.lines[0])
    headings = one_line(trail(piece.title, piece.headings))
    return f"{where} § {headings}" if headings else where


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: `1 passage`, `1,200 passages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def answer_line(answer: Answer) -> str:
    """Return the repr of an answer: the query, the number of results and the best score."""
    query = answer.query.raw_text or answer.query.text
    short = query if len(query) <= MAX_QUERY else f"{query[:MAX_QUERY]}…"
    best = f", best {answer.hits[0].score:.2f}" if answer.hits else ""
    return one_line(f"<Answer to {short!r}: {counted(len(answer.hits), 'result')}{best}>")


def answer_text(answer: Answer) -> str:
    """Return the results as the command line prints them, or the reason why there are none and the closest passages."""
    head = [] if answer.hits else [_empty_text(answer)]
    several = answer.several_collections
    hits = answer.passages
    passages = (
        hit_text(hit, several, f"[{rank}] ", following=hits[rank:])
        for rank, hit in enumerate(hits, 1)
    )
    return "\n\n".join([*head, *passages])


def hit_text(
    hit: Hit,
    several_collections: bool = False,
    label: str = "",
    style: Style = PLAIN,
    following: Sequence[Hit] = (),
) -> str:
    """Return a header with label, place and score, then the quoted passage and what belongs to it."""
    where = headed_place(hit.chunk, several_collections, style)
    below = (
        rest_line(hit, several_collections, style),
        more_line(hit, following),
        similar_line(hit, several_collections, style),
        linked_line(hit, several_collections, style),
    )
    return "\n".join(
        [
            style.bold(f"{label}{where} ({hit.score:.2f})"),
            text_of(hit.chunk),
            *(style.dim(line) for line in below if line),
        ]
    )


def more_line(hit: Hit, following: Sequence[Hit]) -> str:
    """Return `3 more passages of this page match` for the last result of a document, else nothing."""
    document = hit.chunk.document
    if not hit.more or any(other.chunk.document == document for other in following):
        return ""
    return f"{hit.more} more passage{'s of this page match' if hit.more > 1 else ' of this page matches'}"


def rest_line(
    hit: Hit,
    several_collections: bool = False,
    style: Style = PLAIN,
    read: Callable[[str], str] = "get {}".format,
) -> str:
    """Return `list goes on to line 44: get guide/auth.md:33-44` for a hit that ends inside a unit, else nothing."""
    if not hit.continues:
        return ""
    kind, lines = hit.continues
    document = hit.chunk.document
    place = style.rooted(place_text(document, several_collections, lines), document)
    return f"{kind} goes on to line {lines[1]}: {read(place)}"


def similar_line(hit: Hit, several_collections: bool = False, style: Style = PLAIN) -> str:
    """Return `+2 similar: a.md:1-4, b.md:7-9`, the duplicates that were merged into a hit; empty if there are none."""
    if not hit.similar:
        return ""
    shown = place_text(hit.chunk.document, several_collections, hit.chunk.lines)
    named = {
        place_text(similar.document, several_collections, similar.lines): similar.document
        for similar in hit.similar
    }
    # Copies in other documents first.
    others = sorted(named.items(), key=lambda named: named[1] == hit.chunk.document)
    places = [style.rooted(place, document) for place, document in others if place != shown]
    listed = ", ".join([*places[:MAX_SIMILAR], *(["…"] if len(places) > MAX_SIMILAR else [])])
    return f"+{len(hit.similar)} similar{f': {listed}' if listed else ' in the same lines'}"


def linked_line(hit: Hit, several_collections: bool, style: Style = PLAIN) -> str:
    """List the documents that are linked with a result and are no results themselves; empty if there are none."""
    linked = (
        f"{style.rooted(place_text(link.document, several_collections, link.lines), link.document)} ({one_line(link.title)})"
        for link in hit.linked
    )
    return f"Linked with this result: {', '.join(linked)}" if hit.linked else ""


def left_out(answer: Answer) -> tuple[str, list[str]]:
    """Describe what was dropped if there are fewer results than requested; also return the stages."""
    stats = answer.stats
    if not answer.hits or not stats or stats["after_doc_limit"] >= answer.query.limit:
        return "", []
    if answer.query.fills_budget:
        return "", []  # the budget decides
    counts = [stats[key] for key in _DROPPING_STAGES]
    dropped = {
        stage: before - after
        for stage, before, after in zip(_DROPPING_STAGES.values(), counts, counts[1:], strict=False)
        if after < before
    }
    same_document = dropped.get("per_document", 0)
    # Those that were merged into a result are listed below it.
    listed = sum(len(hit.similar) for hit in answer.hits)
    duplicates = max(0, sum(dropped.values()) - same_document - listed)
    parts = []
    if duplicates:
        parts.append(f"{duplicates} duplicate{'s' * (duplicates > 1)}")
    if same_document:
        several = len({hit.chunk.document for hit in answer.hits}) > 1
        documents = "these documents" if several else "this document"
        parts.append(f"{same_document} more passage{'s' * (same_document > 1)} of {documents}")
    stages = [stage for stage in dropped if duplicates or stage == "per_document"]
    return f"Not shown: {', '.join(parts)}" if parts else "", stages


def text_of(chunk: Chunk, escape: Callable[[str], str] = quoted) -> str:
    """Return a passage as readable text, quoted or only escaped; one that has a title only gets a placeholder."""
    from marklight.text.markdown import readable

    return NO_TEXT if chunk.is_title else escape(readable(chunk.text))


def answer_html(answer: Answer) -> str:
    """Return the results as HTML for a notebook; text of documents is escaped."""
    from html import escape

    several = answer.several_collections
    items = "".join(
        f"<li><b>{escape(headed_place(hit.chunk, several))}</b> ({hit.score:.2f})"
        f'<pre style="white-space: pre-wrap">{escape(text_of(hit.chunk, visible))}</pre>'
        f"{escape(similar_line(hit, several))}</li>"
        for hit in answer.passages
    )
    if not answer.hits:
        closest = f'<ol style="opacity: 0.6">{items}</ol>' if items else ""
        return f"<p>{escape(_empty_text(answer))}</p>{closest}"
    notices = "".join(f"<p><i>{escape(one_line(notice))}</i></p>" for notice in answer.notices)
    return f"<ol>{items}</ol>{notices}"


def doubt_line(answer: Answer) -> str:
    """Return the line above passages of which none is likely to answer; empty if one is, or if there are none."""
    return one_line(f"{answer.doubt}. {CLOSEST}") if answer.doubt else ""


def _empty_text(answer: Answer) -> str:
    reason = doubt_line(answer) or answer.empty_reason("min_confidence=0")
    return one_line(reason or "No passage matches the query")


def columns(rows: Sequence[Sequence[str]], left: Sequence[int]) -> str:
    """Return a table: the columns in `left` are aligned to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number in left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys."""
    rows: dict[str, Any] = {}
    for name, value in values.items():
        rows |= (
            flat(value, f"{prefix}{name}.")
            if isinstance(value, Mapping)
            else {prefix + name: value}
        )
    return rows
