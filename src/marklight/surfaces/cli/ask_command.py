"""Command that answers with sources: ask."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.formatting import CLOSEST, headed_place, one_line, quoted, visible
from marklight.surfaces import render
from marklight.surfaces.cli.options import (
    AS_JSON,
    COLOR,
    SET,
    SHOW_ALL,
    confirm_first_run,
    in_library,
    open_own,
    options_of,
    style_of,
)
from marklight.surfaces.cli.output import Bar, note, show, show_aside, show_json

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.citations import CitedAnswer, Sentence


@click.command(short_help="Answer a question from a folder, with sources.")
@click.argument("query")
@in_library
@AS_JSON
@options_of("ask")
@COLOR
@SET
def ask(
    query: str,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """Answer QUERY from the documents of a folder, with sources.

    The language model that the settings name (ask.name) writes the answer from the passages that search finds.
    Every sentence ends with the numbers of the passages that it rests on and is checked against them. If search
    finds no confident match, the model is not called.
    """
    # In this process, even if a daemon runs: the API key may be in the environment of this one only.
    with open_own(folder, assignments) as library, Bar(library.place.folder) as bar:
        if options["refresh"]:
            confirm_first_run(library)
        printer = _Printer(silent=as_json, model=library.settings["ask.name"])
        try:
            answer = library.ask(query, progress=bar, emit=printer, **options)
        finally:
            printer.clear()
        for notice in answer.notices:
            note(notice)
        if as_json:
            show_json(answer.to_dict())
        else:
            _show_sources(answer, style_of(library), style_of(library, sys.stderr))
    return 0 if answer.answered else 1


class _Printer:
    """Prints each sentence once it is checked, one a line; before the first one, that the model is working."""

    def __init__(self, silent: bool, model: str) -> None:
        self._silent, self._model = silent, model
        self._waits = False

    def __call__(self, event: Answer | Sentence) -> None:
        if self._silent:
            return
        if not isinstance(event, tuple):
            self._wait(len(event.hits))
            return
        self.clear()
        lead = event.lead.lstrip("\n").lstrip(" ") if "\n" in event.lead else ""
        if "\n\n" in event.lead:
            show("")
        show(_sentence_line(event, lead))
        sys.stdout.flush()

    def _wait(self, passages: int) -> None:
        if passages and sys.stderr.isatty():
            self._waits = True
            count = "1 passage" if passages == 1 else f"{passages} passages"
            sys.stderr.write(one_line(f"{self._model} reads {count} …"))
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line about the model."""
        if self._waits:
            self._waits = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _sentence_line(sentence: Sentence, lead: str) -> str:
    """Return a sentence with its citations.

    A citation is never at the beginning of a line, so no sentence can pose as a source; code is quoted.
    """
    marks = sentence.marks + ("" if sentence.supported else " (unsupported)")
    if "\n" in sentence.text:
        return f"{quoted(sentence.text)}\n{' ' * 4}{marks.strip()}"
    return visible(f"{lead}{sentence.text} {marks.strip()}")


def _show_sources(answer: CitedAnswer, style: render.Style, aside: render.Style) -> None:
    """Print the places of the cited passages; without an answer, why there is none and what was found."""
    found = answer.search
    several = found.several_collections
    if answer.sentences:
        show("")
        for number, hit in answer.cited:
            show(style.bold(f"[{number}] {headed_place(hit.chunk, several, style.link)}"))
        if any(not each.supported for each in answer.sentences):
            note("The passages do not support sentences that end with (unsupported)")
    elif found.nearest:
        note(f"{answer.abstained}. {CLOSEST}")
        show_aside(render.nearest_text(found, aside))
    elif found.hits:
        note(f"{answer.abstained}. The passages:")
        for number, hit in enumerate(found.hits, 1):
            show_aside(f"[{number}] {headed_place(hit.chunk, several)}")
    else:
        note(found.empty_reason(SHOW_ALL) or str(answer.abstained))
    if answer.removed:
        sentences = "1 sentence" if len(answer.removed) == 1 else f"{len(answer.removed)} sentences"
        note(f"{sentences} removed, which the passages do not support")
