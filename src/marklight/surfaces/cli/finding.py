"""Commands that find and show: search, get, outline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from marklight.escaping import without_controls
from marklight.formatting import left_out
from marklight.place import around
from marklight.surfaces import render
from marklight.surfaces.cli import completing
from marklight.surfaces.cli.options import (
    AFTER,
    AS_JSON,
    BEFORE,
    COLOR,
    EXPLAIN,
    IN_LIBRARY,
    MAX_TOKENS,
    MIN_CONFIDENCE,
    MODE,
    RERANK,
    SET,
    SHOWS_ALL,
    note,
    open_library,
    show,
    show_data,
    show_json,
    style_of,
)
from marklight.surfaces.cli.progress import Bar


@click.command()
@click.argument("query")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("-n", "--limit", default=5, show_default=True, help="How many results, 1 to 100.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--format",
    "format",
    type=click.Choice(render.FORMATS),
    default="text",
    help="How to print the results.",
)
@EXPLAIN
@MODE
@click.option(
    "--collection",
    multiple=True,
    metavar="NAME",
    shell_complete=completing.collections,
    help="Only in this collection; repeatable, like all filters.",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="GLOB",
    shell_complete=completing.documents,
    help="Only these paths, as guide/** or *.md.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATH",
    shell_complete=completing.documents,
    help="Not in this file or glob.",
)
@click.option(
    "--tag",
    multiple=True,
    shell_complete=completing.tags,
    help="Only documents with this tag, or one nested below it.",
)
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Only with this frontmatter.")
@AFTER
@BEFORE
@MIN_CONFIDENCE
@MAX_TOKENS
@RERANK
@click.option("--parents", is_flag=True, help="Whole sections in place of passages.")
@click.option(
    "--context", default=0, metavar="N", help="Show N neighbours on each side of a passage."
)
@click.option("--expand-context", is_flag=True, help="Show the whole section around a passage.")
@click.option(
    "--hypothesis", metavar="TEXT", help="An answer as you imagine it; searched by its meaning."
)
@click.option("--with-history", is_flag=True, help="Commits too, ranked and shown apart.")
@click.option("--no-refresh", is_flag=True, help="Do not look at the disk first.")
@COLOR
@SET
def search(
    query: str,
    path: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    paths: tuple[str, ...],
    no_refresh: bool,
    **options: Any,
) -> int:
    """Find passages; a folder never seen before is indexed first."""
    format = "json" if as_json else format
    with (
        open_library(path, assignments, searching=True) as library,
        Bar(library.place.folder) as bar,
    ):
        answer = library.search(query, path=paths, refresh=not no_refresh, progress=bar, **options)
    for notice in answer.notices:
        note(notice)
    if answer.hits or format == "json":
        printing = show if format in ("text", "md") else show_data
        printing(render.answer_as(answer, format, style_of(library)))
    if options["explain"] and format != "json":
        from marklight.surfaces.explain import explanation

        # What reads the other formats expects nothing but results.
        if format == "text":
            show(f"\n{explanation(answer)}")
        else:
            click.echo(f"\n{explanation(answer)}", err=True)
    if (why := answer.empty_reason(SHOWS_ALL)) and format != "json":
        note(f"nothing found: {why}")
    more, stages = left_out(answer)
    if more and format == "text":
        note(f"{more}; --set search.skip={','.join(stages)} shows more")
    if answer.commits and format != "json":
        from marklight.commits import Commits
        from marklight.surfaces.cli.commits import tell

        assert isinstance(answer.commits, Commits)
        if format in ("text", "md"):
            show("\n## Commits\n" if format == "md" else "\nCommits\n")
        tell(answer.commits, format, style_of(library), options["explain"])
    return 0 if answer.hits or (answer.commits and answer.commits.hits) else 1


@click.command()
@click.argument("reference", metavar="REF", shell_complete=completing.references)
@click.option(
    "--level", help="More of it: passage, neighbours, block, parent, section or document."
)
@click.option("--context", type=int, metavar="N", help="With N passages before it and N after it.")
@IN_LIBRARY
@AS_JSON
@COLOR
@SET
def get(
    reference: str,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    **options: Any,
) -> int:
    """Show a document or a part of it.

    REF is a path or a title, path#heading, path:10-40, or a chunk id. A terminal shows its place above it
    and > before every line; a file or a pipe gets the text alone, as it stands in the document.
    """
    with (
        open_library(around(folder, reference), assignments) as library,
        Bar(library.place.folder) as bar,
    ):
        extract = library.get(reference, near=Path.cwd(), progress=bar, **options)
    for notice in extract.notices:
        note(notice)
    if len(extract.levels) > 1 and not as_json:
        note(f"--level shows more or less: {render.levels_text(extract.levels)}")
    style = style_of(library)
    if as_json:
        show_json(extract.to_dict())
    elif style.terminal:
        show(render.extract_text(extract, style))
    else:
        # A copy, or the input of another program: text of the document and nothing of ours.
        show_data(without_controls(extract.text))
    return 0


@click.command()
@click.argument("path", shell_complete=completing.documents)
@IN_LIBRARY
@AS_JSON
@COLOR
@SET
def outline(path: str, folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Show a document's headings with their lines and anchors."""
    with (
        open_library(around(folder, path), assignments) as library,
        Bar(library.place.folder) as bar,
    ):
        found = library.outline(path, near=Path.cwd(), progress=bar)
    for notice in found.notices:
        note(notice)
    if as_json:
        show_json(found.to_dict())
    else:
        show(render.outline_text(found, style_of(library)) or "no headings")
    return 0
