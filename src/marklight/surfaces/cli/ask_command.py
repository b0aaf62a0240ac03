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
    MIN_CONFIDENCE,
    MODE,
    RERANK,
    SET,
    SHOW_ALL,
    confirm_first_run,
    filter_options,
    in_library,
    open_own,
    style_of,
)
from marklight.surfaces.cli.output import Bar, note, show, show_aside, show_json

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.citations import CitedAnswer, Sentence


@click.command(short_help="Answer a question from a folder, with sources.")
@click.argument("query")
@in_library
@click.option(
    "-n",
    "--limit",
    type=int,
    help="Give the model at most this many passages, 1 to 100 [default: 8].",
)
@AS_JSON
@MODE
@filter_options
@MIN_CONFIDENCE
@click.option(
    "--max-tokens",
    type=int,
    metavar="N",
    help="Limit the answer to N tokens [default: 800].",
)
@RERANK
@click.option(
    "--parents",
    is_flag=True,
    help="Give the model larger passages: each match with its neighbours, up to 2,000 characters.",
)
@click.option("--context", default=0, metavar="N", help="Add N neighbouring passages on each side.")
@click.option("--expand-context", is_flag=True, help="Give the model whole sections.")
@click.option(
    "--hypothesis",
    metavar="TEXT",
    help="Use TEXT, a made-up answer, instead of the query for semantic search (HyDE).",
)
@click.option(
    "--no-refresh",
    is_flag=True,
    help="Search the index as it is, without looking for changed files.",
)
@COLOR
@SET
def ask(
    query: str,
    folder: Path | None,
    limit: int | None,
    as_json: bool,
    assignments: tuple[str, ...],
    paths: tuple[str, ...],
    no_refresh: bool,
    **options: Any,
) -> int:
    """Answer QUERY from the documents of a folder, with sources.

    The language model that the settings name (ask.name) writes the answer from the passages that search finds.
    Every sentence ends with the numbers of the passages that it rests on and is checked against them. If search
    finds no confident match, the model is not called.
    """
    if limit is not None:
        options["limit"] = limit
    # In this process, even if a daemon runs: the API key may be in the environment of this one only.
    with open_own(folder, assignments) as library, Bar(library.place.folder) as bar:
        if not no_refresh:
            confirm_first_run(library)
        printer = _Printer(silent=as_json, model=library.settings["ask.name"])
        try:
            answer = library.ask(
                query,
                path=paths,
                refresh=not no_refresh,
                progress=bar,
                emit=printer,
                **options,
            )
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
