"""Commands about the data of a library: status tells what is indexed, pending and failed; clean removes an index or all data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound, UsageError
from marklight.formatting import counted, flat, one_line
from marklight.place import MAX_NAMED, complete_commands, orphaned_records
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, SET, in_library, open_library, open_own
from marklight.surfaces.cli.output import note, note_all, show, show_json

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.library.maintenance import DataPlace
    from marklight.surfaces.daemon.client import RemoteLibrary

MAX_REMARKS = 20
"""Failures and remarks of each kind that are listed."""
DEFAULT_COLLECTION = "default"
"""Name of the collection of a library whose settings name none."""
LONG_SECONDS = 90
"""Longer times are printed in minutes."""


@click.command()
@in_library
@AS_JSON
@SET
def status(folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    """Show what is indexed, what is pending and what failed."""
    with open_library(folder, assignments) as library:
        values: dict[str, Any] = {**library.status()}
        if daemon := _daemon(library):
            values["daemon"] = daemon
    if orphans := [
        {"folder": record.path, "location": str(index)} for index, record in orphaned_records()
    ]:
        values["orphans"] = orphans
    if as_json:
        show_json(values)
        return 0
    note_all(values["notices"])
    if values["generation"] == 0:
        note("Nothing is indexed yet. Run `marklight index` or a search")
    show(status_text(values, library.place.folder))
    return 0


def status_text(values: Mapping[str, Any], folder: Path) -> str:
    """Render a status as labelled rows, then failures and remarks."""
    rows = {name: text for name, text in _rows(values, folder) if text}
    return "\n".join([render.table(rows), *map(one_line, _remarks(values))])


def _rows(values: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    yield "Library", str(folder)
    yield "State", complete_commands(_state(values), folder)
    yield "Documents", _documents(values)
    yield "Passages", _passages(values)
    yield "Boilerplate", _boilerplate(values["boilerplate"])
    if list(values["collections"]) != [DEFAULT_COLLECTION]:
        for name, each in values["collections"].items():
            place = f" in {each['path']}" if each["path"] else ", on other machines"
            yield f"Collection {name}", counted(each["documents"], "document") + place
    yield "Model", _model(values, "model")
    if values["reranker"] != "none":
        yield "Reranker", _model(values, "reranker")
    if values["ask"] != "none":
        yield "Language model", _model(values, "ask")
    sizes = values["sizes"]
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items())
    total = f", {size_text(sum(sizes.values()))} ({parts})" if sizes else ""
    yield "Index", f"{values['location']}{total}"
    if unused := values["unused_vectors"]:
        yield "Unused vectors", f"{unused:,}, of text that is no longer there"
    if commits := values.get("history"):
        size = size_text(sum(commits["sizes"].values()))
        yield "Commits", f"{commits['commits']:,}; {_passages(commits, ' passages')}; {size}"
    for name in ("server", "queue"):
        for key, value in flat(values.get(name, {})).items():
            if key != "failures":
                yield f"{name.capitalize()} {key}", str(value)
    if orphans := values.get("orphans"):
        names = ", ".join(orphan["folder"] for orphan in orphans[:MAX_NAMED])
        more = f" and {len(orphans) - MAX_NAMED} more" if len(orphans) > MAX_NAMED else ""
        them = "them" if len(orphans) > 1 else "it"
        yield (
            "Orphaned",
            f"index of {names}{more}: no longer there; `marklight clean --orphans` removes {them}",
        )
    if daemon := values.get("daemon"):
        yield "Daemon", f"{daemon['address']} (process {daemon['pid']}, since {daemon['started']})"


def _boilerplate(values: Mapping[str, Any]) -> str:
    """Return how much text many documents share, with the most frequent examples."""
    if not values["blocks"]:
        return ""
    shown = (
        f"{each['text'][:60]!r} ({counted(each['documents'], 'document')})"
        for each in values["most_shared"][:2]
    )
    return (
        f"{counted(values['blocks'], 'repeated block')} of text, not ranked, such as {', '.join(shown)};"
        f" {counted(values['passages'], 'passage')} without other text"
    )


def _state(values: Mapping[str, Any]) -> str:
    following = values.get("following") or {}
    if at := values.get("indexing") or following.get("indexing"):
        share = f", {100 * at['done'] // at['total']} %" if at["total"] else ""
        left = at.get("seconds_left")
        return f"indexing now{share}{f', about {_time(left)} left' if left else ''} ({at['phase'].lower()})"
    if problem := following.get("problem"):
        return str(problem)
    if not values["generation"]:
        return "not indexed yet"
    if outdated := values.get("outdated"):
        return f"{outdated:,} documents keep the passages of earlier settings: `marklight index` replaces them"
    if values["pending"]:
        return "not complete: `marklight index` embeds the rest"
    return "watched for changes" if following.get("watching") else "complete"


def _documents(values: Mapping[str, Any]) -> str:
    more = [
        f"{len(values[key]):,} {what}"
        for key, what in (("failed", "could not be read"), ("remarks", "with remarks"))
        if values[key]
    ]
    return f"{values['documents']:,}" + (f" ({', '.join(more)})" if more else "")


def _passages(values: Mapping[str, Any], noun: str = "") -> str:
    chunks, embedded, pending = values["chunks"], values["embedded"], values["pending"]
    if not chunks:
        return f"0{noun}"
    return f"{chunks:,}{noun}, {render.embedding_state(embedded, pending)}"


def _model(values: Mapping[str, Any], kind: str) -> str:
    text = str(values[kind])
    if address := values.get(f"{kind}_address"):
        text += f" at {address}"
    if problem := values.get(f"{kind}_problem"):
        text += f"; {problem}"
    if kind == "model" and text != "none" and not values["calibrated"]:
        text += "; scores are not calibrated for this model"
    return text


def _remarks(values: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each failure and remark, at most `MAX_REMARKS` of each kind."""
    commits = values.get("history", {"failed": [], "remarks": []})
    kinds = [
        [f"could not be read: {each['ref']}: {each['reason']}" for each in values["failed"]],
        [
            f"not embedded: {each['path']}: {each['reason']}"
            for each in values.get("queue", {}).get("failures", ())
        ],
        [
            f"could not be read: commit {each['commit'][:7]}: {each['reason']}"
            for each in commits["failed"]
        ],
        [f"remark on commit {each['commit'][:7]}: {each['remark']}" for each in commits["remarks"]],
        [f"remark on {each['ref']}: {each['remark']}" for each in values["remarks"]],
    ]
    for lines in kinds:
        yield from (f"  {line}" for line in lines[:MAX_REMARKS])
        if len(lines) > MAX_REMARKS:
            yield f"  … and {len(lines) - MAX_REMARKS:,} more; use --json to see them"


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > LONG_SECONDS else f"{seconds:.0f} s"


def size_text(size: int) -> str:
    """Return a number of bytes as people read it: 812 kB, 12.3 MB, 4.0 GB."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _daemon(library: Library | RemoteLibrary) -> dict[str, Any] | None:
    """Return the state of the daemon that serves this library, with any settings."""
    from marklight.surfaces.daemon import state_files
    from marklight.surfaces.daemon.lifecycle import answering_daemon

    for file, _ in list(state_files(library.place.folder)):
        if state := answering_daemon(file):
            return state.to_dict()
    return None


@click.command(short_help="Remove the index of a library, or all data.")
@in_library
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Remove all your indexes, cached models and other data of Marklight on this machine.",
)
@click.option("--orphans", is_flag=True, help="Remove the indexes of folders that no longer exist.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@AS_JSON
@SET
def clean(
    folder: Path | None,
    every: bool,
    orphans: bool,
    yes: bool,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """Remove the index of a library after asking; documents and settings are never removed.

    A later search indexes the folder again. A running daemon is stopped first.
    """
    from marklight.library import maintenance

    if (every or orphans) and folder is not None:
        raise UsageError("--all and --orphans concern all libraries", "Leave out PATH")
    library: Path | None = None
    if every or orphans:
        places = maintenance.all_data() if every else maintenance.orphans()
    else:
        with open_own(folder, assignments) as opened:
            places, library = maintenance.library_data(opened), opened.place.folder
    if not places:
        raise NotFound("There is nothing to remove")
    if not yes:
        _confirm(places)
    if not orphans or every:
        _stop_daemons(library)
    maintenance.delete(places)
    if as_json:
        show_json(
            [{"what": each.what, "path": str(each.path), "bytes": each.size} for each in places]
        )
    else:
        for place in places:
            show(one_line(f"Removed {place.what} {place.path} ({size_text(place.size)})"))
    if every:
        from marklight.settings import user_file

        note(
            f"Your settings in {user_file().parent} are kept. To uninstall: pip uninstall marklight"
        )
    return 0


def _confirm(places: Sequence[DataPlace]) -> None:
    for place in places:
        note(f"To be removed: {place.what} {place.path} ({size_text(place.size)})")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Nothing was removed: there is no terminal to confirm on", "Add --yes")
    if not click.confirm("Remove?", err=True):
        raise UsageError("Nothing was removed")


def _stop_daemons(library: Path | None) -> None:
    from marklight.surfaces.daemon.lifecycle import stop

    for state in stop(library):
        note(f"Stopped the daemon of {state.folder}")
