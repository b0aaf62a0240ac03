"""What a line means in an interactive session: a question, a result's number or a command."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from marklight.answer import Answer, Hit, Mode
from marklight.errors import MarklightError, NotFound, UsageError
from marklight.escaping import one_line
from marklight.formatting import left_out
from marklight.levels import LEVELS
from marklight.report import Extract
from marklight.surfaces import render
from marklight.surfaces.cli.editor import open_at
from marklight.surfaces.cli.options import complain, note, show, style_of
from marklight.surfaces.cli.progress import Bar
from marklight.surfaces.explain import explanation
from marklight.surfaces.listing import listing

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary

HINT = "Ask in words. 1 shows result 1, 1 section widens it, :o 1 opens it. :help, :q"
MOST = 100
"""Results that one question can have."""

_RESULT = re.compile(
    rf"(?:(\d{{1,9}})|:?(\d{{1,9}})\s+({'|'.join(LEVELS)})|:(\d{{1,9}})(?:\s+(\S+))?)", re.ASCII
)


class Session:
    """One library, opened once, and what was last asked of it."""

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
        """Whether a person sits there."""
        self.question, self.filters = "", ""
        self.answer: Answer | None = None
        self.nearest = False
        """Whether it shows what is unlikely as well."""
        self.code = 0
        """The worst exit code so far, for a script."""

    def take(self, line: str) -> bool:
        """Do what one line says; False ends the session. An error is told and ends nothing."""
        text = " ".join(line.split())
        try:
            if result := _RESULT.fullmatch(text):
                self._show(next(filter(None, result.group(1, 2, 4))), result[3] or result[5] or "")
            elif text.startswith(":"):
                name, _, words = text[1:].partition(" ")
                command = _named(name)
                if command.names[0] == "q":
                    return False
                command.do(self, words.strip())
            elif text:
                self._ask(text)
        except MarklightError as error:
            complain(str(error))
            self.code = max(self.code, error.exit_code)
        return True

    @property
    def hits(self) -> Sequence[Hit]:
        """The results that can be named by their numbers."""
        return self.answer.hits if self.answer else ()

    def prompt(self) -> str:
        """What stands before the line that is typed: whatever is not as usual."""
        unusual = [self.mode if self.mode is not Mode.HYBRID else "", self.filters]
        state = " ".join(filter(None, unusual))
        return one_line(f"marklight [{state}]> " if state else "marklight> ")

    def completions(self, typed: str) -> list[str]:
        """Words that may stand where the line ends."""
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

    def _ask(self, question: str, nearest: bool = False) -> None:
        answer = self._search(question, self.page, nearest)
        self.question, self.answer, self.nearest = question, answer, nearest
        if answer.hits:
            self._list(answer.hits, 1)
        self._tell(answer)

    def _more(self, _: str) -> None:
        before = self._last()
        shown = {hit.chunk.id for hit in self.hits}
        wanted = min(MOST, len(shown) + self.page)
        answer = self._search(self.question, wanted, self.nearest)
        fresh = [hit for hit in answer.hits if hit.chunk.id not in shown][: wanted - len(shown)]
        # Numbers that were given stay: what comes is put behind them, in its own order.
        first = len(self.hits) + 1
        self.answer = replace(
            answer,
            hits=(*self.hits, *fresh),
            levels={**before.levels, **answer.levels},
        )
        if not fresh:
            raise NotFound("there are no more results")
        self._list(fresh, first)

    def _nearest(self, _: str) -> None:
        self._last()
        self._ask(self.question, nearest=True)

    def _widen(self, words: str) -> None:
        number, _, level = words.partition(" ")
        self._show(number, level.strip())

    def _open(self, words: str) -> None:
        hit = self._hit(words)
        open_at(self._file(hit), hit.chunk.lines[0], terminal=self.terminal)

    def _filter(self, words: str) -> None:
        if not words:
            note(f"filters: {self.filters or 'none; :f tag:x after:2026-01 sets some'}")
            return
        self._again("" if words == "-" else words, self.mode)

    def _mode(self, words: str) -> None:
        if not words:
            note(f"mode {self.mode}; known: {', '.join(Mode)}")
            return
        if words not in list(Mode):
            raise UsageError(f"no mode is called {words!r}", f"Known: {', '.join(Mode)}")
        self._again(self.filters, Mode(words))

    def _explain(self, _: str) -> None:
        self._say(explanation(self._last()))

    def _help(self, _: str) -> None:
        usual = {
            "WORDS": 'ask; tag:x path:docs/** after:2026-01 "phrase" -without narrow it',
            "N": "show result N, and how much there is around it",
            "N LEVEL": f"show more around it: {', '.join(LEVELS[1:])}",
        }
        commands = {
            f"{', '.join(f':{name}' for name in one.names)} {one.arguments}".rstrip(): one.said
            for one in COMMANDS
        }
        self._say(render.table(usual | commands))

    # Inside

    def _last(self) -> Answer:
        if self.answer is None:
            raise UsageError("nothing was asked yet", "Ask in words")
        return self.answer

    def _search(self, question: str, limit: int, nearest: bool) -> Answer:
        with Bar() as bar:
            return self.library.search(
                f"{question} {self.filters}".strip(),
                limit=limit,
                mode=self.mode,
                min_confidence=0 if nearest else None,
                explain=True,
                progress=bar,
            )

    def _again(self, filters: str, mode: Mode) -> None:
        """The last question once more; what makes it fail is not kept."""
        before = self.filters, self.mode
        self.filters, self.mode = filters, mode
        try:
            if self.question:
                asked = one_line(f"{self.question} {filters}".strip())
                show(style_of(self.library).dim(asked))
                self._ask(self.question)
        except MarklightError:
            self.filters, self.mode = before
            raise

    def _say(self, text: str) -> None:
        """What was asked for, and an empty line: the next thing is another."""
        show(f"{text}\n")

    def _list(self, hits: Sequence[Hit], first: int) -> None:
        self._say(
            listing(
                hits,
                question=self.question,
                width=shutil.get_terminal_size().columns,
                first=first,
                several_collections=len(self.library.collections) > 1,
                style=style_of(self.library),
            )
        )

    def _tell(self, answer: Answer) -> None:
        for notice in answer.notices:
            note(notice)
        if why := answer.empty_reason(":nearest"):
            note(f"nothing found: {why}")
        if more := left_out(answer)[0]:
            note(more)
        if not answer.hits:
            self.code = max(self.code, NotFound.exit_code)

    def _show(self, number: str, level: str) -> None:
        hit = self._hit(number)
        self._file(hit)
        style = style_of(self.library)
        known = self._last().levels.get(hit.chunk.id, ())
        wider = [one for one in known if one.name != "passage"]
        if level and level not in LEVELS:
            here = render.levels_text(wider) or ", ".join(LEVELS)
            raise UsageError(f"no level is called {level!r}", f"Known here: {here}")
        if level and level != "passage":
            self._say(render.extract_text(self._widened(hit, level), style))
            return
        shown = render.hit_text(int(number), hit, len(self.library.collections) > 1, style)
        around = f"wider: {render.levels_text(wider)}" if wider else "this is all of the document"
        self._say(f"{shown}\n\n{style.dim(around)}")

    def _widened(self, hit: Hit, level: str) -> Extract:
        try:
            with Bar() as bar:
                extract = self.library.get(hit.chunk.id, level=level, progress=bar)
        except NotFound:
            raise NotFound(f"{hit.chunk.path} has changed since this answer", "Ask again") from None
        for notice in extract.notices:
            note(notice)
        return extract

    def _hit(self, number: str) -> Hit:
        count = len(self.hits)
        if not number.isascii() or not number.isdigit():
            raise UsageError(f"{number!r} is no result's number", "Name one, such as 1")
        if len(number) > 9 or not 1 <= int(number) <= count:
            there = f"the last is {count}" if count else "nothing was found"
            raise NotFound(
                f"there is no result {number}: {there if self.answer else 'nothing was asked yet'}",
                f'"{number}" in quotes asks for it',
            )
        return self.hits[int(number) - 1]

    def _file(self, hit: Hit) -> Path:
        file = self.library.collections[hit.chunk.collection] / hit.chunk.path
        if not file.exists():
            raise NotFound(f"{hit.chunk.path} is no longer on the disk", "Ask again")
        return file


class Command(NamedTuple):
    """A word that begins with a colon, and what it does."""

    names: tuple[str, ...]
    arguments: str
    said: str
    do: Callable[[Session, str], None]


COMMANDS = (
    Command(("w", "widen"), "N LEVEL", "the same as N LEVEL", Session._widen),
    Command(
        ("o", "open"), "N", "open its file at its line, with $VISUAL or $EDITOR", Session._open
    ),
    Command(("n", "more"), "", "more results", Session._more),
    Command(
        ("nearest",), "", "the last question again, with what is unlikely too", Session._nearest
    ),
    Command(
        ("f", "filter"), "[WORDS]", "add these to every question; :f - ends it", Session._filter
    ),
    Command(("mode",), "[MODE]", f"which retrievers answer: {', '.join(Mode)}", Session._mode),
    Command(("explain",), "", "stages, times and scores of the last answer", Session._explain),
    Command(("h", "help"), "", "this list", Session._help),
    Command(("q", "quit"), "", "end; so does Ctrl-D. Ctrl-C stops a search", lambda *_: None),
)


def _named(name: str) -> Command:
    for command in COMMANDS:
        if name in command.names:
            return command
    raise UsageError(f"no command is called :{name}", ":help lists them")
