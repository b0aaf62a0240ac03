"""Show results on a terminal: one header a result, the lines that answer, weak matches folded into one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from marklight.answer import ANSWERS, verdict
from marklight.formatting import (
    NO_TEXT,
    QUOTE,
    Style,
    counted,
    doubt_line,
    left_out,
    linked_line,
    one_line,
    place_text,
    rest_line,
    visible,
)
from marklight.model import trail
from marklight.surfaces.cli.output import cut, cut_left, display_width, folded
from marklight.text.analyzer import analyze, fold, has_cjk
from marklight.text.snippets import Excerpt, excerpt

if TYPE_CHECKING:
    from marklight.answer import Answer, Hit
    from marklight.model import Chunk, DocumentId
    from marklight.query import Query

WEAK = 0.1
"""Below this score, a result after one that answers the query is folded: nine of ten are not relevant."""
MIN_LISTED = 3
"""Documents from which on equally good results are a list."""
FIRST_ROWS, MAX_ROWS, MIN_ROWS = 8, 4, 2
"""Lines of text of the first passage, of each other one, and of each if there are many."""
WHOLE_ROWS = 16
"""Lines of text of the first passage, and of others that are complete in so many, where there is room."""
SCREEN_LINES = 26
"""Lines of five results, of which the first has eight lines of text and the others two, and of one line above or below."""
FURTHER, GUTTER = "  ", "    "
"""Before the header of a further passage, and before each line of a document's text, so that none can pose as a header."""
MIN_TRAIL = 12
"""Columns; a shorter trail of headings is not shown."""

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*[+#]*")


class Matcher:
    """Finds the words of a query in text, in any inflection."""

    def __init__(self, query: Query) -> None:
        self.terms, self.languages, _ = self.wanted = query.terms
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

    def excerpt(self, chunk: Chunk, rows: int, width: int) -> Excerpt:
        """Return the part of a passage that answers the query in some rows."""
        return excerpt(chunk, self.wanted, rows, partial(rows_in, width=width))

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
    is_list = bool(answer.hits) and not everything and _is_list(answer)
    shown = [hit for hit in hits if everything or not _is_weak(hit, hits[0], answer)]
    matcher = Matcher(answer.query)
    scored = bool(answer.query.text) and not is_list
    above = _headline(answer, shown, is_list)
    below = "" if everything else _folded_line(answer, len(hits) - len(shown))
    groups = by_document(shown)
    frames = [
        _frame(group, answer, style, width, leads=group is groups[0], scored=scored)
        for group in groups
    ]
    # A blank line between documents, one line above all and one below.
    used = len(groups) - 1 + sum(map(len, chain.from_iterable(frames))) + bool(above) + bool(below)
    texts = _texts(list(chain.from_iterable(groups)), matcher, width, SCREEN_LINES - used)
    blocks = []
    for group, frame in zip(groups, frames, strict=True):
        rows = [
            line
            for (head, *rest), hit in zip(frame, group, strict=True)
            for line in (
                head,
                *(GUTTER + matcher.highlighted(row, style) for row in texts[hit.chunk.id]),
                *rest,
            )
        ]
        blocks.append("\n".join(rows))
    parts = (style.dim(above), "\n\n".join(blocks), style.dim(below))
    return "\n".join(filter(None, parts))


def _frame(
    group: Sequence[Hit], answer: Answer, style: Style, width: int, *, leads: bool, scored: bool
) -> list[list[str]]:
    """Return for each passage of a document its header and the lines below its text."""
    frames: list[list[str]] = []
    several = answer.several_collections
    for place, hit in enumerate(group):
        first = leads and not place
        lines = [header(hit, answer, style, width, follows=place > 0, leads=first, scored=scored)]
        if rest := rest_line(hit, several, style):
            lines.append(GUTTER + style.dim(cut(rest, width - len(GUTTER))))
        frames.append(lines)
    if linked := linked_line(group[0], several, style):
        frames[-1].append(style.dim(cut(FURTHER + linked, width)))
    return frames


def _texts(hits: Sequence[Hit], matcher: Matcher, width: int, room: int) -> dict[str, list[str]]:
    """Return the rows of text of each passage, by passage id; together they have `room` if each has two."""
    columns = width - len(GUTTER)
    whole = [passage_rows(hit, matcher, columns, WHOLE_ROWS + 1) for hit in hits]
    rows = [min(len(text), MIN_ROWS) for text in whole]
    left = max(0, room - sum(rows))
    for place, text in enumerate(whole):
        wanted = min(len(text), MAX_ROWS if place else FIRST_ROWS)
        more = max(0, min(wanted - rows[place], left))
        rows[place] += more
        left -= more
    # What is left is for the first one, then completes others.
    for place, text in enumerate(whole):
        more = min(len(text), WHOLE_ROWS) - rows[place]
        if place and (len(text) > WHOLE_ROWS or more > left):
            continue
        rows[place] += min(more, left)
        left -= min(more, left)
    return {
        hit.chunk.id: text if len(text) <= count else passage_rows(hit, matcher, columns, count)
        for hit, text, count in zip(hits, whole, rows, strict=True)
    }


def _is_list(answer: Answer) -> bool:
    """Return true for a query of one word that several documents mention, of which none answers."""
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


def _headline(answer: Answer, shown: Sequence[Hit], is_list: bool) -> str:
    """Return the line above results that are a list, or of which none is likely to answer."""
    if not is_list:
        return doubt_line(answer)
    documents = counted(len({hit.chunk.document for hit in shown}), "document")
    return one_line(f"{documents} about {answer.query.text.strip()}")


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
    leads: bool = False,
    scored: bool = True,
) -> str:
    """Return `guide/auth.md:5-9 § Auth > Tokens … answers 0.83`; of a further passage of a document `:12-15 § Refresh`.

    That of the first result has the number of other passages of its document that match.
    """
    chunk = hit.chunk
    lines = "-".join(map(str, chunk.lines))
    name = style.rooted(place_text(chunk.document, answer.several_collections), chunk.document)
    facts = [f"+{hit.more} more here"] if leads and hit.more else []
    facts += [f"+{len(hit.similar)} similar"] if hit.similar else []
    facts += [certainty(hit, answer)] if scored else []
    right = "  ".join(facts)
    headings = [heading for heading in chunk.headings if heading != chunk.title]
    steps = " > ".join(headings) if follows else trail(chunk.title, chunk.headings)
    room = width - len(lines) - 1 - (len(right) + 2 if right else 0)
    path = "" if follows else cut_left(name, max(MIN_TRAIL, room))
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


def passage_rows(hit: Hit, matcher: Matcher, width: int, rows: int) -> list[str]:
    """Return the part of a passage that answers, folded to some rows."""
    if hit.chunk.is_title:
        return [NO_TEXT]
    return excerpt_rows(matcher.excerpt(hit.chunk, rows, width), width, rows)


def excerpt_rows(part: Excerpt, width: int, rows: int) -> list[str]:
    """Return an excerpt folded to at most some rows, with ellipses where text is left out."""
    # The rest need not be folded.
    text = part.text[: rows * width + 1].strip("\n")
    header = [cut(_plain(part.header), width)] if part.header else []
    text = f"… {_plain(text).lstrip()}" if part.before else _plain(text)
    shown = fold_rows(text, width)
    room = max(1, rows - len(header))
    if len(shown) > room:
        shown = [*shown[: room - 1], cut(f"{shown[room - 1]} …", width)]
    return [*header, *shown]


def _plain(text: str) -> str:
    lines = (line.rstrip() for line in visible(text).split("\n"))
    return "\n".join(filter(None, lines)).expandtabs(4)


def rows_in(text: str, width: int) -> int:
    """Return about how many rows a text takes when it is folded."""
    columns = width * 19 // 20  # the rest stays empty where the next word does not fit
    lines = filter(None, map(str.rstrip, text.split("\n")))
    widths = (len(line) if line.isascii() else display_width(line) for line in lines)
    return sum(-(-columns_used // max(1, columns)) for columns_used in widths)


def fold_rows(text: str, width: int) -> list[str]:
    """Return a text in rows of at most some columns, broken between words, without indentation."""
    quoted = "\n".join(QUOTE + line for line in text.split("\n"))
    return [row.removeprefix(QUOTE) for row in folded(quoted, width + len(QUOTE)).split("\n")]


def oneline(hit: Hit, matcher: Matcher, style: Style, width: int | None) -> str:
    """Return `guide/auth.md:5:Tokens expire after an hour.`, as grep prints a match; cut to a width on a terminal."""
    place = f"{one_line(style.file(hit.chunk.document))}:{hit.chunk.lines[0]}:"
    row = hit.chunk.title
    if not hit.chunk.is_title:
        part = matcher.excerpt(hit.chunk, 1, ONELINE_CHARACTERS)
        [row] = excerpt_rows(part._replace(header=""), ONELINE_CHARACTERS, 1)
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
