"""The interactive session: run lines, which are queries, result numbers or commands such as :help; list results in a table."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from marklight.answer import Answer, Hit
from marklight.errors import MarklightError, NotFound, UsageError
from marklight.formatting import CLOSEST, QUOTE, left_out, one_line, place_text
from marklight.levels import LEVELS
from marklight.model import DocumentId, trail
from marklight.operations import LevelName
from marklight.query import Mode
from marklight.report import Extract
from marklight.surfaces import render
from marklight.surfaces.cli.options import current_folder, style_of
from marklight.surfaces.cli.output import (
    Bar,
    complain,
    cut,
    cut_left,
    display_width,
    note,
    show,
    without_echo,
)
from marklight.surfaces.explain import explanation
from marklight.surfaces.render import PLAIN, Style, listing_as
from marklight.text import analyze, query_terms
from marklight.text.lines import split_sentences
from marklight.text.markdown import readable

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary

HINT = (
    "Type a query. Then: 1 to show result 1, `1 section` for its section, `:o 1` to open its file,"
    " `help`, `exit`"
)
WORDS = {"exit": "q", "quit": "q", "help": "help", "?": "help"}
"""Lines that are commands without a colon; in quotes they are queries."""
MAX_RESULTS = 100
"""Results that one query can have."""

_RESULT = re.compile(
    rf"(?:(\d{{1,9}})|:?(\d{{1,9}})\s+({'|'.join(LEVELS)})|:(\d{{1,9}})(?:\s+(\S+))?)", re.ASCII
)


class Session:
    """State of a session: the library, the last query and its answer, filters and mode."""

    def __init__(
        self,
        library: Library | RemoteLibrary,
        *,
        limit: int = 5,
        mode: str = "hybrid",
        terminal: bool = False,
    ) -> None:
        self.library, self.page, self.mode = library, limit, Mode(mode)
        self.terminal = terminal
        """True if lines are typed at a terminal, false if they are piped."""
        self.query, self.filters = "", ""
        self.answer: Answer | None = None
        self.nearest = False
        """True if the answer includes results below the confidence threshold."""
        self.all = False
        """True if duplicates are results of their own."""
        self.code = 0
        """The highest exit code so far, for scripts."""

    def take(self, line: str) -> bool:
        """Run one line; return False if it ends the session. An error is printed and ends nothing."""
        text = " ".join(line.split())
        if word := WORDS.get(text.lower()):
            text = f":{word}"
        try:
            if result := _RESULT.fullmatch(text):
                self._show(next(filter(None, result.group(1, 2, 4))), result[3] or result[5] or "")
            elif text.startswith(":"):
                name, _, arguments = text[1:].partition(" ")
                command = _command(name)
                if command.names[0] == "q":
                    return False
                command.run(self, arguments.strip())
            elif text:
                self._run_query(text)
        except MarklightError as error:
            complain(str(error))
            self.code = max(self.code, error.exit_code)
        return True

    @property
    def hits(self) -> Sequence[Hit]:
        """Return the numbered results; where there is no confident match, the closest passages."""
        return self.answer.passages if self.answer else ()

    def prompt(self) -> str:
        """Return the prompt, with the mode and the filters unless they are the default."""
        changed = [self.mode if self.mode is not Mode.HYBRID else "", self.filters]
        state = " ".join(filter(None, changed))
        return one_line(f"marklight [{state}]> " if state else "marklight> ")

    def completions(self, typed: str) -> list[str]:
        """Return completions of the last word of the line."""
        *before, last = typed.split(" ")
        numbers = [str(number) for number in range(1, len(self.hits) + 1)]
        known: Sequence[str] = ()
        match before:
            case []:
                names = [f":{command.names[-1]}" for command in COMMANDS]
                known = names if last.startswith(":") else numbers if last else ()
            case [":mode"]:
                known = list(Mode)
            case [":o" | ":open" | ":w" | ":widen"]:
                known = numbers
            case [number] | [":w" | ":widen", number] if number.lstrip(":") in numbers:
                known = LEVELS
        return [word for word in known if word.startswith(last)]

    # Commands

    def _run_query(self, query: str, nearest: bool = False, all: bool = False) -> None:
        answer = self._search(query, self.page, nearest, all)
        self.query, self.answer, self.nearest, self.all = query, answer, nearest, all
        if answer.hits:
            self._list(answer.hits, 1)
        self._print_notes(answer)
        if answer.nearest:
            self._list(answer.nearest, 1, dimmed=True)

    def _more(self, _: str) -> None:
        before = self._last()
        shown = {hit.chunk.id for hit in self.hits}
        limit = min(MAX_RESULTS, len(shown) + self.page)
        answer = self._search(self.query, limit, self.nearest, self.all)
        new = [hit for hit in answer.hits if hit.chunk.id not in shown][: limit - len(shown)]
        # Numbers already shown stay valid: new results are appended in their own order.
        first = len(self.hits) + 1
        self.answer = replace(
            answer,
            hits=(*self.hits, *new),
            levels={**before.levels, **answer.levels},
        )
        if not new:
            raise NotFound("No more results")
        self._list(new, first)

    def _nearest(self, _: str) -> None:
        self._last()
        self._run_query(self.query, nearest=True)

    def _all(self, _: str) -> None:
        self._last()
        self._run_query(self.query, self.nearest, all=True)

    def _documents(self, arguments: str) -> None:
        query = arguments or self.query
        with without_echo(self.terminal), Bar() as bar:
            listing = self.library.list_documents(
                f"{query} {self.filters}".strip(), mode=self.mode.value, progress=bar
            )
        for notice in listing.notices:
            note(notice)
        if listing.abstained:
            raise NotFound(listing.abstained)
        self._print(listing_as(listing, "text", style_of(self.library)))

    def _widen(self, arguments: str) -> None:
        number, _, level = arguments.partition(" ")
        self._show(number, level.strip())

    def _open(self, arguments: str) -> None:
        from marklight.surfaces.cli.line_editor import open_in_editor

        if arguments.isdigit() or not arguments:
            hit = self._hit(arguments)
            id, line = hit.chunk.document, hit.chunk.lines[0]
        else:
            extract = self.library.get(arguments, near=current_folder())
            id, line = extract.document, extract.lines[0]
        open_in_editor(self._file(id), line, terminal=self.terminal)

    def _filter(self, arguments: str) -> None:
        if not arguments:
            note(f"Filters: {self.filters or 'none. Set filters with :f tag:x after:2026-01'}")
            return
        self._repeat("" if arguments == "-" else arguments, self.mode)

    def _mode(self, arguments: str) -> None:
        if not arguments:
            note(f"Mode: {self.mode}. Change it with :mode MODE ({', '.join(Mode)})")
            return
        if arguments not in list(Mode):
            raise UsageError(f"No such mode: {arguments}", f"Choose from: {', '.join(Mode)}")
        self._repeat(self.filters, Mode(arguments))

    def _explain(self, _: str) -> None:
        self._print(explanation(self._last()))

    def _help(self, _: str) -> None:
        lines = {
            "WORDS": 'search; narrow with tag:x path:docs/** after:2026-01 "phrase" -without',
            "N": "show result N, and how much more context there is",
            "N LEVEL": f"show more context: {', '.join(LEVELS[1:])}",
        }
        commands = {
            f"{', '.join(f':{name}' for name in each.names)} {each.arguments}".rstrip(): each.help
            for each in COMMANDS
        }
        self._print(render.table(lines | commands))

    # Helpers

    def _last(self) -> Answer:
        if self.answer is None:
            raise UsageError("There is no query yet", "Type one first")
        return self.answer

    def _search(self, query: str, limit: int, nearest: bool, all: bool) -> Answer:
        with without_echo(self.terminal), Bar() as bar:
            return self.library.search(
                f"{query} {self.filters}".strip(),
                limit=limit,
                mode=self.mode.value,
                min_confidence=0 if nearest else None,
                all=all,
                explain=True,
                progress=bar,
            )

    def _repeat(self, filters: str, mode: Mode) -> None:
        """Repeat the last query with other filters or another mode; restore both if it fails."""
        before = self.filters, self.mode
        self.filters, self.mode = filters, mode
        try:
            if self.query:
                text = one_line(f"{self.query} {filters}".strip())
                show(style_of(self.library).dim(text))
                self._run_query(self.query)
        except MarklightError:
            self.filters, self.mode = before
            raise

    def _print(self, text: str) -> None:
        """Print a text and an empty line."""
        show(f"{text}\n")

    def _list(self, hits: Sequence[Hit], first: int, dimmed: bool = False) -> None:
        style = style_of(self.library)
        table = result_table(
            hits,
            query=self.query,
            width=shutil.get_terminal_size().columns,
            first=first,
            several_collections=len(self.library.collections) > 1,
            style=render.PLAIN if dimmed else style,
        )
        self._print(style.dim(table) if dimmed else table)

    def _print_notes(self, answer: Answer) -> None:
        for notice in answer.notices:
            note(notice)
        if answer.nearest:
            note(f"{answer.abstained}. {CLOSEST}")
        elif reason := answer.empty_reason(":nearest"):
            note(reason)
        if more := left_out(answer)[0]:
            note(more)
        if not answer.hits:
            self.code = max(self.code, NotFound.exit_code)

    def _show(self, number: str, level: str) -> None:
        hit = self._hit(number)
        self._file(hit.chunk.document)
        style = style_of(self.library)
        levels = self._last().levels.get(hit.chunk.id, ())
        wider = [each for each in levels if each.name != "passage"]
        if level and level not in LEVELS:
            known = render.levels_text(wider) or ", ".join(LEVELS)
            raise UsageError(f"No such level: {level}", f"Choose from: {known}")
        if level and level != "passage":
            self._print(render.extract_text(self._extract(hit, cast(LevelName, level)), style))
            return
        text = render.hit_text(int(number), hit, len(self.library.collections) > 1, style)
        context = (
            f"more context: {render.levels_text(wider)}" if wider else "this is the whole document"
        )
        self._print(f"{text}\n\n{style.dim(context)}")

    def _extract(self, hit: Hit, level: LevelName) -> Extract:
        try:
            with without_echo(self.terminal), Bar() as bar:
                extract = self.library.get(hit.chunk.id, level=level, progress=bar)
        except NotFound:
            raise NotFound(
                f"{hit.chunk.path} has changed since this search", "Search again"
            ) from None
        for notice in extract.notices:
            note(notice)
        return extract

    def _hit(self, number: str) -> Hit:
        count = len(self.hits)
        if not number.isascii() or not number.isdigit():
            raise UsageError(f"{number!r} is not a result number", "Type a number such as 1")
        if len(number) > 9 or not 1 <= int(number) <= count:
            reason = f"the last one is {count}" if count else "the search found nothing"
            raise NotFound(
                f"There is no result {number}: {reason if self.answer else 'there is no query yet'}",
                f'Type "{number}" in quotes to search for it',
            )
        return self.hits[int(number) - 1]

    def _file(self, id: DocumentId) -> Path:
        file = self.library.collections[id.collection] / id.path
        if not file.exists():
            raise NotFound(f"{id.path} no longer exists", "Search again")
        return file


class Command(NamedTuple):
    """A command of the session, typed after a colon."""

    names: tuple[str, ...]
    arguments: str
    help: str
    run: Callable[[Session, str], None]


COMMANDS = (
    Command(("w", "widen"), "N LEVEL", "same as N LEVEL", Session._widen),
    Command(
        ("o", "open"),
        "N",
        "open the file of result N, or of a place such as guide/auth.md:10, with $VISUAL or $EDITOR",
        Session._open,
    ),
    Command(("n", "more"), "", "show more results", Session._more),
    Command(
        ("nearest",),
        "",
        "show the closest passages even if none is a confident match",
        Session._nearest,
    ),
    Command(("all",), "", "show similar passages as results of their own", Session._all),
    Command(
        ("l", "list"),
        "[WORDS]",
        "list all documents that match WORDS or the last query",
        Session._documents,
    ),
    Command(
        ("f", "filter"),
        "[FILTERS]",
        "set filters for all queries; :f - clears them, :f shows them",
        Session._filter,
    ),
    Command(("mode",), "[MODE]", f"set the search method: {', '.join(Mode)}", Session._mode),
    Command(("explain",), "", "show stages, times and scores of the last search", Session._explain),
    Command(("h", "?", "help"), "", "show this list", Session._help),
    Command(("q", "exit", "quit"), "", "quit, like Ctrl-D; Ctrl-C stops a search", lambda *_: None),
)


def _command(name: str) -> Command:
    for command in COMMANDS:
        if name in command.names:
            return command
    raise UsageError(f"No such command: :{name}", "Type :help for a list")


MINIMUM_TRAIL = 16
"""Columns; a shorter trail of headings is not shown."""
MINIMUM_PLACE = 12
_PREVIEW_INDENT = " " * 5 + QUOTE


def result_table(
    hits: Sequence[Hit],
    *,
    query: str,
    width: int,
    first: int = 1,
    several_collections: bool = False,
    style: Style = PLAIN,
) -> str:
    """Render two lines a result: rank, score, kind, place and headings; below, a quoted preview."""
    places = [place_text(hit.chunk.document, several_collections, hit.chunk.lines) for hit in hits]
    heads = [
        f"{rank:>3}  {hit.score:.2f}  {hit.chunk.kind:<5}  " for rank, hit in enumerate(hits, first)
    ]
    available = max(MINIMUM_PLACE, width - max(map(len, heads), default=0))
    column = min(available, max(map(display_width, places), default=0))
    terms = set(query_terms(query))
    rows = []
    for head, where, hit in zip(heads, places, hits, strict=True):
        shown = cut_left(where, column)
        left = available - column - 2
        headings = one_line(trail(hit.chunk.title, hit.chunk.headings))
        row = head + style.bold(style.link(shown, hit.chunk.document, hit.chunk.lines[0]))
        if headings and left >= MINIMUM_TRAIL:
            row += " " * (column - display_width(shown) + 2) + cut_left(headings, left)
        similar = f"+{len(hit.similar)} similar · " if hit.similar else ""
        text = hit.chunk.snippet_text(quoted='"' in query)
        line = cut(similar + preview(text, terms), width - len(_PREVIEW_INDENT))
        rows += [row, style.dim(_PREVIEW_INDENT + line)]
    return "\n".join(row.rstrip() for row in rows)


def preview(text: str, terms: set[str]) -> str:
    """Return one line of a passage that starts with the first sentence containing the most query terms."""
    sentences = split_sentences(readable(text))
    if not sentences:
        sentences = [text]
    best = max(
        range(len(sentences)), key=lambda at: (len(terms & set(analyze(sentences[at]))), -at)
    )
    line = " ".join(" ".join(sentences[best:]).split())
    return one_line(f"… {line}" if best else line)
