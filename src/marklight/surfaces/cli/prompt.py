"""Lines from a person at a terminal: editing, history and completion by prompt_toolkit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.shortcuts import CompleteStyle

from marklight.surfaces.cli.history import LineFile
from marklight.surfaces.cli.session import Session


class Kept(History):
    """Our file of lines, as prompt_toolkit asks for it."""

    def __init__(self, file: LineFile) -> None:
        super().__init__()
        self.file = file

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        return reversed(self.file.read())

    def store_string(self, string: str) -> None:
        """Called with each line that was entered."""
        self.file.add(string)


class Words(Completer):
    """What the session offers, at the end of the line."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """Called when Tab is pressed."""
        del event
        typed = document.text_before_cursor
        begun = len(typed) - len(typed.rpartition(" ")[2])
        for word in self.session.completions(typed):
            yield Completion(word, start_position=begun - len(typed))


def prompting(session: Session, file: LineFile) -> PromptSession[str]:
    """Tab completes; Up goes through lines that begin as the one typed, Ctrl-R searches all."""
    return PromptSession(
        history=Kept(file),
        completer=Words(session),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        enable_history_search=True,
    )
