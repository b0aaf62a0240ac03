"""Live search: a full-screen session that searches while somebody types, with a list of results and a preview (prompt_toolkit)."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Condition, Lock, Thread
from typing import TYPE_CHECKING, Any, cast

from prompt_toolkit.application import Application, get_app, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition as When
from prompt_toolkit.filters import Filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    AnyContainer,
    BufferControl,
    DynamicContainer,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from marklight.answer import Answer, Hit
from marklight.errors import MarklightError
from marklight.formatting import NO_TEXT, doubt_line, one_line, place_text, visible
from marklight.model import trail
from marklight.operations import LevelName, ModeName
from marklight.surfaces.cli.editor import open_in_editor
from marklight.surfaces.cli.output import cut, cut_left, display_width
from marklight.surfaces.cli.result_view import Matcher, certainty, fold_rows
from marklight.text.markdown import readable

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.client import RemoteLibrary

LIMIT = 20
"""Results in the list."""
WAIT_SECONDS = 0.08
"""Time without a key press before a search starts: most people type faster."""
REFRESH_SECONDS = 0.5
"""Time until the progress is drawn again."""
WIDE = 120
"""Columns from which on the preview is beside the list, not below it."""
LEVELS: tuple[LevelName, ...] = ("passage", "section", "document")
"""Context levels that Ctrl-L shows in turn."""
FILTERS = {
    "tag:": "documents with a tag",
    "path:": "files that match a pattern",
    "after:": "dated then or later",
    "before:": "dated then or earlier",
    "task:open": "documents with open tasks",
    "task:done": "documents with finished tasks",
    "lang:": "with code in a language",
    "author:": "by an author",
}
KEYS = (
    ("Enter", "open"),
    ("Ctrl-Y", "copy"),
    ("Tab", "filter"),
    ("Ctrl-L", "context"),
    ("PgDn", "scroll"),
    ("Esc", "quit"),
)
HINT = 'Type to search. Filters such as tag:x, path:docs/**, after:2026-01 and "a phrase" narrow the results.'
MAX_COMPLETIONS = 50
COLORS = Style.from_dict(
    {
        "path": "ansimagenta bold",
        "lines": "ansigreen",
        "match": "ansired bold",
        "likely": "ansigreen",
        "faint": "ansibrightblack",
        "selected": "reverse",
        "key": "bold",
        "problem": "ansired",
    }
)


class Superseded(Exception):
    """Raised inside a search whose query has been edited meanwhile."""


class LiveSearch:
    """State of a session: what is typed, its answer, the selected result and the preview. One thread calls the library."""

    def __init__(
        self,
        library: Library | RemoteLibrary,
        *,
        limit: int = LIMIT,
        mode: str = "hybrid",
        progress: Callable[[], str] = str,
    ) -> None:
        self.library, self.limit, self.mode = library, limit, mode
        self.progress = progress
        self.answer: Answer | None = None
        self.matcher: Matcher | None = None
        self.selected, self.level, self.scrolled = 0, 0, 0
        self.texts: dict[tuple[str, str], str] = {}
        """Text of results at wider context levels, by passage and level."""
        self.message = ""
        self.is_searching = False
        self.buffer = Buffer(
            completer=FilterCompleter(self), on_text_changed=self._on_text, multiline=False
        )
        self.calls = Lock()
        """Held while the library is called: a connection to a daemon serves one call at a time."""
        self._wanted: str | None = None
        self._changed, self._closed = Condition(), False
        self.app: Application[None] = _application(self)

    # Search in a thread

    def run(self) -> None:
        """Run the session until it is ended."""
        worker = Thread(target=self._work, daemon=True)
        worker.start()
        try:
            self.app.run()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify()
            worker.join(timeout=5)

    def _on_text(self, _: Buffer) -> None:
        with self._changed:
            self._wanted = self.buffer.text
            self._changed.notify()
        self.message = ""

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._closed:
                    self._changed.wait()
                while self._changed.wait(WAIT_SECONDS):
                    pass  # another key was pressed
                if self._closed:
                    return
                text, self._wanted = self._wanted or "", None
            with suppress(Superseded):
                self._search(text)
            self.is_searching = False
            self.app.invalidate()

    def _search(self, text: str) -> None:
        answer, message = None, ""
        self.is_searching = True
        self.app.invalidate()
        if text.strip():
            try:
                with self.calls:
                    answer = self.library.search(
                        text,
                        limit=self.limit,
                        mode=cast(ModeName, self.mode),
                        prefix=True,
                        **self._hooks(),
                    )
            except MarklightError as error:
                message = one_line(str(error))
        if answer is not None and not message:
            message = doubt_line(answer) or answer.abstained or next(iter(answer.notices), "")
        self.answer, self.message = answer, one_line(message)
        self.matcher = Matcher(answer.query) if answer is not None else None
        self.selected = self.level = self.scrolled = 0
        self.texts.clear()

    def _hooks(self) -> dict[str, Any]:
        if self.library.is_remote:
            return {}

        def check() -> None:
            if self._wanted is not None or self._closed:
                raise Superseded

        return {"check_cancelled": check}

    # What is selected

    @property
    def hits(self) -> tuple[Hit, ...]:
        """Return the results; where none is likely to answer, the closest passages."""
        return self.answer.passages if self.answer is not None else ()

    @property
    def hit(self) -> Hit | None:
        """Return the selected result."""
        return self.hits[self.selected] if self.selected < len(self.hits) else None

    def select(self, step: int) -> None:
        """Select a result further down or up."""
        self.selected = max(0, min(len(self.hits) - 1, self.selected + step))
        self.scrolled = self.level = 0

    def scroll(self, step: int) -> None:
        """Scroll the preview."""
        self.scrolled = max(0, self.scrolled + step)

    def widen(self) -> None:
        """Show the section of the selected result, then its document, then the passage again."""
        if self.hit is None:
            return
        self.level, self.scrolled = (self.level + 1) % len(LEVELS), 0
        name, id = LEVELS[self.level], self.hit.chunk.id
        if self.level and (id, name) not in self.texts:
            try:
                with self.calls:
                    self.texts[id, name] = self.library.get(id, level=name).text
            except MarklightError as error:
                self.level, self.message = 0, one_line(str(error))

    @property
    def place(self) -> str:
        """Return the place of the selected result, as every command accepts it."""
        chunk = self.hit.chunk if self.hit else None
        several = len(self.library.collections) > 1
        return place_text(chunk.document, several, chunk.lines) if chunk else ""

    def copy(self) -> None:
        """Copy the place of the selected result by OSC 52, which works over SSH too."""
        if not self.place:
            return
        data = base64.b64encode(self.place.encode()).decode()
        self.app.output.write_raw(f"\x1b]52;c;{data}\x07")
        self.app.output.flush()
        self.message = f"Copied {self.place}"

    def open(self) -> None:
        """Open the file of the selected result in the user's editor, at its line."""
        if self.hit is None:
            return
        chunk = self.hit.chunk
        file = self.library.collections[chunk.document.collection] / chunk.document.path

        def edit() -> None:
            try:
                if not file.exists():
                    raise MarklightError(f"{chunk.document.path} no longer exists")
                open_in_editor(file, chunk.lines[0])
            except MarklightError as error:
                self.message = one_line(str(error))

        run_in_terminal(edit, in_executor=True)

    # What is shown

    def status(self) -> StyleAndTextTuples:
        """Return the line below the query: a message, or the number of results; at its end the progress of indexing."""
        count = len(self.hits)
        if self.message:
            text = self.message
        elif self.is_searching and not self.hits:
            text = "Searching …"
        elif self.answer is not None:
            text = f"{count} result{'' if count == 1 else 's'}"
        else:
            text = ""
        width = self._columns()
        right = self.progress()
        room = max(0, width - display_width(right) - 2)
        shown = cut(text, room)
        gap = " " * max(1, width - display_width(shown) - display_width(right) - 1)
        return [("class:faint", f"{shown}{gap}{right}")]

    def listed(self) -> StyleAndTextTuples:
        """Return the list: a line for each result."""
        width, several = self._list_columns(), len(self.library.collections) > 1
        rows: StyleAndTextTuples = []
        for number, hit in enumerate(self.hits):
            chunk, answer = hit.chunk, cast(Answer, self.answer)
            selected = number == self.selected
            mark = "> " if selected else "  "
            lines = f":{'-'.join(map(str, chunk.lines))}"
            word = certainty(hit, answer)
            path = cut_left(place_text(chunk.document, several), max(8, width - len(lines) - 4))
            used = 2 + display_width(path) + len(lines)
            left = width - used - 2 - (len(word) + 2 if word else 0)
            steps = one_line(trail(chunk.title, chunk.headings))
            text = f"  {cut_left(steps, left)}" if steps and left >= 8 else ""
            gap = max(0, width - used - display_width(text) - len(word)) if word else 0
            reverse = " class:selected" if selected else ""
            if selected:
                rows.append(("[SetCursorPosition]", ""))
            rows += [
                (reverse, mark),
                (f"class:path{reverse}", path),
                (f"class:lines{reverse}", lines),
                (reverse, text),
            ]
            if word and gap:
                rows.append((f"class:faint{reverse}", " " * gap + word))
            rows.append(("", "\n"))
        return rows[:-1]

    def previewed(self) -> StyleAndTextTuples:
        """Return the preview: the selected passage, or its section or document, with matching words highlighted."""
        if self.hit is None or self.matcher is None:
            hint = "" if self.buffer.text.strip() else HINT
            return [("class:faint", "\n".join(fold_rows(hint, self._preview_columns())))]
        chunk, level = self.hit.chunk, LEVELS[self.level]
        source = self.texts.get((chunk.id, level), chunk.text)
        text = NO_TEXT if chunk.is_title else visible(readable(source)).expandtabs(4)
        rows = fold_rows(text, self._preview_columns())
        if self.level and not self.scrolled and level == "document":
            self.scrolled = self._row_of_passage(rows)
        self.scrolled = min(self.scrolled, max(0, len(rows) - 1))
        shown: StyleAndTextTuples = []
        for row in rows[self.scrolled :][: self._lines()]:
            shown += [("class:match" * match, text) for text, match in self.matcher.parts(row)]
            shown.append(("", "\n"))
        return shown

    def _row_of_passage(self, rows: list[str]) -> int:
        """Return the row of a document at which the selected passage begins, less a few."""
        assert self.hit
        first = next(filter(None, readable(self.hit.chunk.text).split("\n")), "")[:40]
        return next((max(0, at - 2) for at, row in enumerate(rows) if first and first in row), 0)

    def preview_title(self) -> StyleAndTextTuples:
        """Return the line above the preview."""
        width = self._preview_columns()
        if self.hit is None:
            return [("class:faint", "─" * width)]
        title = cut(f"── {self.place} · {LEVELS[self.level]} ", width)
        return [("class:faint", title + "─" * max(0, width - display_width(title)))]

    def keys(self) -> StyleAndTextTuples:
        """Return the line of keys, as many as fit."""
        shown: StyleAndTextTuples = []
        left = self._columns()
        for key, effect in KEYS:
            left -= len(key) + len(effect) + 3
            if left >= -2:
                shown += [("class:key", key), ("class:faint", f" {effect}  ")]
        return shown

    def is_wide(self) -> bool:
        """Return true if the preview is beside the list."""
        return self._columns() >= WIDE

    def _columns(self) -> int:
        return get_app().output.get_size().columns

    def _lines(self) -> int:
        return get_app().output.get_size().rows

    def _list_columns(self) -> int:
        return self._columns() // 2 - 1 if self.is_wide() else self._columns()

    def _preview_columns(self) -> int:
        return (
            self._columns() - self._list_columns() - (1 if self.is_wide() else 0) or self._columns()
        )


class FilterCompleter(Completer):
    """Completes filters on Tab: their names, then tags, folders and values of the library."""

    def __init__(self, session: LiveSearch) -> None:
        self.session = session

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """Yield the filters that the last word may become."""
        del event
        word = document.get_word_before_cursor(WORD=True)
        name, colon, value = word.partition(":")
        if word.startswith("#"):
            yield from self._values("#", word[1:], self._tags())
        elif not colon:
            for filter, meaning in FILTERS.items():
                if filter.startswith(word):
                    yield Completion(filter, -len(word), display_meta=meaning)
        elif name == "tag":
            yield from self._values("tag:", value, self._tags())
        elif name == "path":
            yield from self._values("path:", value, self._folders(value))
        elif name == "task":
            yield from self._values("task:", value, ["open", "done"])

    def _values(self, prefix: str, value: str, known: list[str]) -> Iterator[Completion]:
        matching = [each for each in known if each.startswith(value) and " " not in each]
        for each in matching[:MAX_COMPLETIONS]:
            yield Completion(f"{prefix}{each}", -len(prefix) - len(value))

    def _tags(self) -> list[str]:
        with suppress(MarklightError), self.session.calls:
            return [one_line(tag) for tag in self.session.library.tags()]
        return []

    def _folders(self, value: str) -> list[str]:
        """Return the folders of documents that begin with a value, as patterns."""
        with suppress(MarklightError), self.session.calls:
            page = self.session.library.documents(like=value, limit=1000)
            paths = (id.named(page.several_collections) for id, _ in page.documents)
            folders = {path.rpartition("/")[0] for path in paths} - {""}
            return [f"{one_line(folder)}/**" for folder in sorted(folders)]
        return []


def _application(session: LiveSearch) -> Application[None]:
    control = BufferControl(session.buffer, input_processors=[BeforeInput("> ", "class:key")])
    listed = Window(
        FormattedTextControl(session.listed), wrap_lines=False, dont_extend_height=False
    )
    preview = HSplit(
        [
            Window(FormattedTextControl(session.preview_title), height=1),
            Window(FormattedTextControl(session.previewed)),
        ]
    )
    beside = VSplit([listed, Window(width=1, char="│", style="class:faint"), preview])
    below = HSplit([listed, preview])

    def body() -> AnyContainer:
        return beside if session.is_wide() else below

    root = HSplit(
        [
            Window(control, height=1),
            Window(FormattedTextControl(session.status), height=1),
            DynamicContainer(body),
            Window(FormattedTextControl(session.keys), height=1),
        ]
    )
    menu = Float(CompletionsMenu(max_height=10), xcursor=True, ycursor=True)
    application: Application[None] = Application(
        Layout(FloatContainer(root, [menu]), focused_element=control),
        key_bindings=_bindings(session),
        full_screen=True,
        style=COLORS,
        color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
        refresh_interval=REFRESH_SECONDS,
    )
    # Escape quits at once, and is not taken for the beginning of a key for long.
    application.ttimeoutlen, application.timeoutlen = 0.05, 0.1
    return application


def _bindings(session: LiveSearch) -> KeyBindings:
    bindings = KeyBindings()
    completing = When(lambda: session.buffer.complete_state is not None)

    def on(*keys: str, when: Filter | None = None) -> Callable[[Callable[[], None]], None]:
        def add(action: Callable[[], None]) -> None:
            def handle(_: KeyPressEvent) -> None:
                action()

            for key in keys:
                bindings.add(key, filter=when if when is not None else True)(handle)

        return add

    on("down", "c-n", when=~completing)(lambda: session.select(1))
    on("up", "c-p", when=~completing)(lambda: session.select(-1))
    on("down", when=completing)(session.buffer.complete_next)
    on("up", "s-tab", when=completing)(session.buffer.complete_previous)
    on("pagedown", "s-down")(lambda: session.scroll(5))
    on("pageup", "s-up")(lambda: session.scroll(-5))
    on("c-l")(session.widen)
    on("c-y")(session.copy)
    on("enter", when=~completing)(session.open)
    on("c-c", "c-q")(lambda: session.app.exit())
    on("escape", when=~completing)(lambda: session.app.exit())

    @bindings.add("c-d", filter=When(lambda: not session.buffer.text))
    def _(event: KeyPressEvent) -> None:
        event.app.exit()

    @bindings.add("enter", filter=completing)
    @bindings.add("escape", filter=completing)
    def _(event: KeyPressEvent) -> None:
        del event
        session.buffer.complete_state = None

    @bindings.add("tab")
    def _(event: KeyPressEvent) -> None:
        del event
        if session.buffer.complete_state:
            session.buffer.complete_next()
        else:
            session.buffer.start_completion(select_first=True)

    return bindings
