"""The command that searches the history of a repository: commits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.surfaces import explain, history
from marklight.surfaces.cli.options import (
    AFTER,
    BEFORE,
    EXPLAIN,
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
    style_of,
)
from marklight.surfaces.cli.progress import Bar
from marklight.surfaces.style import Style

if TYPE_CHECKING:
    from marklight.commits import Commits


@click.command(short_help="Find commits by what their messages and diffs say.")
@click.argument("query")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("-n", "--limit", default=5, show_default=True, help="How many commits, 1 to 100.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--format",
    "format",
    type=click.Choice(history.FORMATS),
    default="text",
    help="How to print the results.",
)
@EXPLAIN
@MODE
@click.option(
    "--files",
    multiple=True,
    metavar="GLOB",
    help="Only commits that changed such a file, as src/** or *.md; repeatable.",
)
@click.option(
    "--author", multiple=True, metavar="NAME", help="Only by this author: a part of name or e-mail."
)
@AFTER
@BEFORE
@MIN_CONFIDENCE
@MAX_TOKENS
@RERANK
@click.option("--no-refresh", is_flag=True, help="Do not look for new commits first.")
@SET
def commits(
    query: str,
    path: Path | None,
    format: str,
    as_json: bool,
    assignments: tuple[str, ...],
    no_refresh: bool,
    **options: Any,
) -> int:
    """Find commits by message and diff; a repository never seen before is read first."""
    format = "json" if as_json else format
    with open_library(path, assignments, searching=True) as library, Bar() as bar:
        found = library.commits(query, refresh=not no_refresh, progress=bar, **options)
    tell(found, format, style_of(library), options["explain"])
    return 0 if found.hits else 1


def tell(found: Commits, format: str, style: Style, explained: bool) -> None:
    """Commits in one of the formats, and beside them what is worth knowing."""
    for notice in found.notices:
        note(notice)
    if (found.hits and format in history.FORMATS) or format == "json":
        printing = show if format in ("text", "md") else show_data
        printing(history.commits_as(found, format, style))
    if explained and format != "json":
        click.echo(f"\n{explain.explanation(history.by_short(found))}", err=format != "text")
    if (why := found.empty_reason(SHOWS_ALL)) and format != "json":
        note(f"no commit found: {why}")
