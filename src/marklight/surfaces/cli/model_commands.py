"""Commands about models: models list, pull, verify, import."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.formatting import one_line
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON
from marklight.surfaces.cli.output import Bar, show, show_json

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
    """List installed models, and known models with the command to install them."""
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
            f"{_output(row):>14}  {row.token_limit or '?':>5} tokens  {row.licence:<12} {row.state}"
        )
        for row in rows
    }
    show(render.table(shown))
    return 0


@models.command()
@click.argument("name")
@click.option(
    "--revision", default="main", show_default=True, help="Use this branch, tag or commit."
)
def pull(name: str, revision: str) -> int:
    """Download a model from Hugging Face (or HF_ENDPOINT); resumes an interrupted download."""
    from marklight.models import pull as hub

    with Bar() as bar:
        record = hub.pull(name, revision=revision, progress=bar)
    show(_installed(record))
    return 0


@models.command(short_help="Check the files of models.")
@click.argument("name", required=False)
@AS_JSON
def verify(name: str | None, as_json: bool) -> int:
    """Check the model files against their SHA-256 checksums.

    Models on a server get a test request. Checks all models by default.
    """
    from marklight.models import store

    remote = {server.name: (server, kind) for server, kind in _configured()}
    installed = [row.name for row in store.list_models() if row.path]
    problems = {}
    for model in [name] if name else [*installed, *remote]:
        if model in remote:
            from marklight.models.remote import verify as verify_server

            problems[model] = verify_server(*remote[model])
        else:
            problems[model] = store.verify(model)
    if as_json:
        show_json(problems)
    else:
        for model, found in problems.items():
            show(one_line(f"{model}: {'; '.join(found) or 'ok'}"))
    return 3 if any(problems.values()) else 0


@models.command("import")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--name", help="Name to install it under [default: the name in its files, or the folder name]."
)
def import_(folder: Path, name: str | None) -> int:
    """Import a model from a folder with an ONNX file and tokenizer.json."""
    from marklight.models import store

    record = store.import_folder(folder, name)
    show(_installed(record))
    return 0


def _configured() -> list[tuple[Server, Kind]]:
    """Return the models on servers that the settings of the current folder configure."""
    from marklight.library import Library

    with Library() as library:
        servers: list[tuple[Server | None, Kind]] = [
            (library.models.embedder_server, "embedder"),
            (library.models.reranker_server, "reranker"),
            (library.models.generator_server, "generator"),
        ]
    return [(server, kind) for server, kind in servers if server]


def _output(row: ModelRow) -> str:
    names = {"reranker": "cross-encoder", "generator": "language model"}
    return names.get(row.kind, f"{row.dimension or '?'} dimensions")


def _installed(record: ModelRecord) -> str:
    setting = "reranker.name" if record.kind == "reranker" else "model.name"
    return f'Installed {record.name}. To use it, set {setting} = "{record.name}" in your settings'
