"""Show results on a terminal: one header a result, a few lines of text around the match, weak matches folded into one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from marklight.answer import ANSWERS, verdict
from marklight.formatting import (
    NO_TEXT,
    QUOTE,
    Style,
    counted,
    left_out,
    linked_line,
    one_line,
    place_text,
    rest_line,
    visible,
)
from marklight.model import trail
from marklight.surfaces.cli.output import cut, cut_left, display_width, folded
from marklight.text.analyzer import analyze, fold, has_cjk, query_terms
from marklight.text.markdown import readable, snippet

if TYPE_CHECKING:
    from marklight.answer import Answer, Hit
    from marklight.model import DocumentId
    from marklight.query import Query

WEAK = 0.1
"""Below this score, a result after one that answers the query is folded: nine of ten are not relevant."""
DOUBTFUL = 0.3
"""A best score below this gets a line that says so."""
MIN_LISTED = 3
"""Documents from which on equally good results are a list."""
MAX_ROWS, MIN_ROWS, SCREEN_ROWS = 4, 2, 22
"""Lines of text below a header, and of all results together: five fit a window of 24 lines with a line above and below."""
FURTHER, GUTTER = "  ", "    "
"""Before the header of a further passage, and before each line of a document's text, so that none can pose as a header."""
MIN_TRAIL = 12
"""Columns; a shorter trail of headings is not shown."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*[+#]*")


class Matcher:
    """Finds the words of a query in text, in any inflection."""

    def __init__(self, query: Query) -> None:
        self.languages = query.languages
        self.terms = frozenset(query_terms(*query.spellings, languages=query.languages))
        last = query.typed_text or query.text
        self.prefix = fold(last.split()[-1]) if query.prefix and last.split() else ""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each word that matches; of CJK text, of each pair of characters."""
        for word in _WORD.finditer(text):
            if has_cjk(word[0]):
                for at in range(word.start(), max(word.start() + 1, word.end() - 1)):
                    if self._matches(text[at : at + 2]):
                        yield at, min(at + 2, word.end())
            elif self._matches(word[0]):
                yield word.start(), word.end()

    def _matches(self, word: str) -> bool:
        if self.prefix and fold(word).startswith(self.prefix):
            return True
        terms = {term for language in self.languages for term in analyze(word, language)}
        terms.update(analyze(word.replace("'", "").replace("’", "")))
        return not self.terms.isdisjoint(terms)

    def parts(self, row: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a row of text, and whether each of them matches."""
        offset = 0
        for start, end in self.spans(row):
            start = max(start, offset)
            yield row[offset:start], False
            yield row[start:end], True
            offset = end
        yield row[offset:], False

    def highlighted(self, row: str, style: Style) -> str:
        """Return a row of text with the matching words highlighted."""
        if not style.escapes:
            return row
        return "".join(style.match(text) if matches else text for text, matches in self.parts(row))


def answer_view(answer: Answer, style: Style, width: int, *, everything: bool = False) -> str:
    """Return the results, or the closest passages where there are none; weak ones are folded unless `everything`."""
    # A document without text is never first: its title is all that it says.
    hits = sorted(answer.passages, key=lambda hit: hit.chunk.is_title)
    is_list = bool(answer.hits) and _is_list(answer)
    shown = [hit for hit in hits if everything or not _is_weak(hit, hits[0], answer)]
    matcher = Matcher(answer.query)
    budget = (SCREEN_ROWS + 1 - 2 * len(shown)) // max(1, len(shown)) if answer.hits else MIN_ROWS
    scored = bool(answer.hits and answer.query.text) and not is_list
    groups: list[str] = []
    for number, group in enumerate(by_document(shown)):
        lines: list[str] = []
        for at, hit in enumerate(group):
            rows = (
                MAX_ROWS
                if number == at == 0 and answer.hits
                else min(max(budget, MIN_ROWS), MAX_ROWS)
            )
            lines.append(header(hit, answer, style, width, follows=at > 0, scored=scored))
            lines += passage_rows(hit, answer.query, matcher, style, width, rows)
            if rest := rest_line(hit, answer.several_collections, style):
                lines.append(GUTTER + style.dim(cut(rest, width - len(GUTTER))))
        linked = linked_line(group[0], answer.several_collections, style)
        if answer.hits and linked:
            lines.append(style.dim(cut(FURTHER + linked, width)))
        groups.append("\n".join(lines))
    above = [] if everything else _headline(answer, shown, is_list)
    below = "" if everything else _folded_line(answer, len(hits) - len(shown))
    parts = [*(style.dim(line) for line in above), "\n\n".join(groups)]
    return "\n".join(filter(None, [*parts, style.dim(below)]))


def _is_list(answer: Answer) -> bool:
    """Return true for a query of one word that several documents mention, of which none stands out."""
    hits = answer.hits
    if len(answer.query.text.split()) != 1:
        return False
    known = max(hits[0].score, hits[0].answer_probability or 0.0) >= ANSWERS
    documents = {hit.chunk.document for hit in hits if verdict(hit) == "mentions"}
    return hits[0].score < ANSWERS and known and len(documents) >= MIN_LISTED


def _is_weak(hit: Hit, best: Hit, answer: Answer) -> bool:
    """Return true for a weak result after one that answers the query."""
    weak = hit.score < WEAK or (answer.calibrated and verdict(hit) == "weak")
    return weak and best.score >= ANSWERS


def _headline(answer: Answer, shown: Sequence[Hit], is_list: bool) -> list[str]:
    """Return the line above results that are a list, or of which the best is doubtful."""
    if not answer.hits or not answer.query.text:
        return []
    if is_list:
        documents = counted(len({hit.chunk.document for hit in shown}), "document")
        return [one_line(f"{documents} about {answer.query.text.strip()}")]
    if answer.hits[0].score < DOUBTFUL:
        return ["No passage stands out. These come closest:"]
    return []


def _folded_line(answer: Answer, weaker: int) -> str:
    """Return what is not shown, and the option that shows it."""
    similar = sum(len(hit.similar) for hit in answer.hits)
    parts = [f"{weaker} weaker match{'es' * (weaker > 1)}"] if weaker else []
    parts += [f"{counted(similar, 'similar passage')}"] if similar else []
    if parts:
        return f"{' and '.join(parts)}, --all shows them"
    return left_out(answer)[0]


def by_document(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Group passages of the same document, each group at the place of its best passage."""
    groups: dict[DocumentId, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.chunk.document, []).append(hit)
    return list(groups.values())


def certainty(hit: Hit, answer: Answer) -> str:
    """Return `answers 0.83`, `mentions 0.12` or `weak`; the score alone if scores are not calibrated."""
    score = f"{hit.score:.2f}"
    if not answer.calibrated:
        return score
    return f"{verdict(hit)} {score}" if float(score) else verdict(hit)


def header(
    hit: Hit,
    answer: Answer,
    style: Style,
    width: int,
    *,
    follows: bool = False,
    scored: bool = True,
) -> str:
    """Return `guide/auth.md:5-9 § Auth > Tokens … answers 0.83`; of a further passage of a document `:12-15 § Refresh`."""
    chunk = hit.chunk
    lines = "-".join(map(str, chunk.lines))
    name = style.rooted(place_text(chunk.document, answer.several_collections), chunk.document)
    facts = [f"+{len(hit.similar)} similar"] if hit.similar else []
    facts += [certainty(hit, answer)] if scored else []
    right = "  ".join(facts)
    headings = [heading for heading in chunk.headings if heading != chunk.title]
    steps = " > ".join(headings) if follows else trail(chunk.title, chunk.headings)
    path = "" if follows else cut_left(name, max(MIN_TRAIL, width - len(lines) - 1))
    indent = FURTHER if follows else ""
    used = display_width(f"{indent}{path}:{lines}")
    left = width - used - 3 - (len(right) + 2 if right else 0)
    shown = one_line(steps)
    text = f" § {cut(shown, left)}" if shown and left >= MIN_TRAIL else ""
    gap = width - used - display_width(text) - len(right)
    place = style.link(
        f"{style.path(path)}{style.lines(f':{lines}')}", chunk.document, chunk.lines[0]
    )
    end = (
        f"{' ' * gap}{style.certainty(right, likely=scored and hit.score >= ANSWERS)}"
        if right and gap > 0
        else ""
    )
    return f"{indent}{place}{text}{end}"


def passage_rows(
    hit: Hit, query: Query, matcher: Matcher, style: Style, width: int, rows: int
) -> list[str]:
    """Return a few lines of a passage around the match, indented and highlighted."""
    if hit.chunk.is_title:
        return [GUTTER + style.dim(NO_TEXT)]
    text = readable(hit.chunk.snippet_text(query.filters.has_phrases), reflow=True)
    excerpt = excerpt_rows(text, matcher, width - len(GUTTER), rows)
    return [GUTTER + matcher.highlighted(row, style) for row in excerpt]


def excerpt_rows(text: str, matcher: Matcher, width: int, rows: int) -> list[str]:
    """Return the part of a text with the most query terms, from the start of a sentence or line, folded to some rows."""
    lines = (line.rstrip() for line in visible(text).split("\n"))
    text = "\n".join(filter(None, lines)).expandtabs(4)
    room = rows * width * 9 // 10  # the rest stays empty where the next word does not fit
    parts = fold_rows(snippet(text, matcher.terms, room, rows, matcher.languages), width)
    return parts if len(parts) <= rows else [*parts[: rows - 1], cut(f"{parts[rows - 1]} …", width)]


def fold_rows(text: str, width: int) -> list[str]:
    """Return a text in rows of at most some columns, broken between words, without indentation."""
    quoted = "\n".join(QUOTE + line for line in text.split("\n"))
    return [row.removeprefix(QUOTE) for row in folded(quoted, width + len(QUOTE)).split("\n")]


def oneline(hit: Hit, query: Query, matcher: Matcher, style: Style, width: int | None) -> str:
    """Return `guide/auth.md:5:Tokens expire after an hour.`, as grep prints a match; cut to a width on a terminal."""
    place = f"{one_line(style.file(hit.chunk.document))}:{hit.chunk.lines[0]}:"
    text = (
        ""
        if hit.chunk.is_title
        else readable(hit.chunk.snippet_text(query.filters.has_phrases), reflow=True)
    )
    row = " ".join(excerpt_rows(text, matcher, ONELINE_CHARACTERS, 1)) if text else hit.chunk.title
    row = one_line(" ".join(row.split()))
    if width is not None:
        row = cut(row, max(MIN_TRAIL, width - display_width(place)))
    file, line, _ = place.rsplit(":", 2)
    shown = style.link(
        f"{style.path(file)}:{style.lines(line)}:", hit.chunk.document, hit.chunk.lines[0]
    )
    return shown + matcher.highlighted(row, style)


ONELINE_CHARACTERS = 200
"""Characters of the text in a line of `--oneline`."""
