"""Commands about models: list, pull, verify, import."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.escaping import one_line
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, show, show_json
from marklight.surfaces.cli.progress import Bar

if TYPE_CHECKING:
    from marklight.models.record import Kind, ModelRecord
    from marklight.models.remote.server import Server
    from marklight.models.store import ModelRow


@click.group(short_help="List, pull, verify and import models.")
def models() -> None:
    """List, pull, verify and import embedding models and cross-encoders."""


@models.command("list")
@AS_JSON
def list_(as_json: bool) -> int:
    """Show every model that is known or kept here, and how to get the others."""
    from marklight.models import store

    rows = store.list_models()
    if configured := _configured():
        from marklight.models.remote import model_row

        rows += [model_row(server, kind) for server, kind in configured]
    if as_json:
        show_json([dataclasses.asdict(row) for row in rows])
        return 0
    shown = {
        f"{'*' if row.default else ' '} {row.name}": (
            f"{_gives(row):>13}  {row.token_limit or '?':>5} tokens  {row.licence:<12} {row.state}"
        )
        for row in rows
    }
    show(render.table(shown))
    return 0


@models.command()
@click.argument("name")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit.")
def pull(name: str, revision: str) -> int:
    """Fetch a model from its hub; an interrupted download goes on where it was."""
    from marklight.models import pull as hub

    with Bar() as bar:
        record = hub.pull(name, revision=revision, progress=bar)
    show(_here(record))
    return 0


@models.command()
@click.argument("name", required=False)
@AS_JSON
def verify(name: str | None, as_json: bool) -> int:
    """Compare a model's files, or every model's, with their SHA-256; try those on a server."""
    from marklight.models import store

    remote = {server.name: (server, kind) for server, kind in _configured()}
    kept = [row.name for row in store.list_models() if row.path]
    names = [name] if name else [*kept, *remote]
    found = {}
    for each in names:
        if each in remote:
            from marklight.models.remote import verify as try_server

            found[each] = try_server(*remote[each])
        else:
            found[each] = store.verify(each)
    if as_json:
        show_json(found)
    else:
        for each, problems in found.items():
            show(one_line(f"{each}: {'; '.join(problems) or 'ok'}"))
    return 3 if any(found.values()) else 0


@models.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", help="What to call it here; else the name in its files, or the folder's.")
def import_(folder: Path, name: str | None) -> int:
    """Copy a model from a folder with an ONNX file and tokenizer.json."""
    from marklight.models import store

    record = store.import_folder(folder, name)
    show(_here(record))
    return 0


def _configured() -> list[tuple[Server, Kind]]:
    """Models on servers that the settings around the current folder name."""
    from marklight.library import Library

    with Library() as library:
        found: list[tuple[Server | None, Kind]] = [
            (library.models.embedder_server, "embedder"),
            (library.models.reranker_server, "reranker"),
        ]
    return [(server, kind) for server, kind in found if server]


def _gives(row: ModelRow) -> str:
    return "cross-encoder" if row.kind == "reranker" else f"{row.dimension or '?'} numbers"


def _here(record: ModelRecord) -> str:
    setting = "reranker.name" if record.kind == "reranker" else "model.name"
    return f"{record.name} is here; use it with {setting} = {record.name!r}"
