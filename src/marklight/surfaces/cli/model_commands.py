"""Commands about models and their quality: models list, pull, verify, import; eval."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marklight.errors import UsageError
from marklight.formatting import one_line
from marklight.operations import ModeName
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, SET, options_of
from marklight.surfaces.cli.output import Bar, note, show, show_json

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
        for model, reasons in problems.items():
            show(one_line(f"{model}: {'; '.join(reasons) or 'ok'}"))
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


@click.command("eval", short_help="Measure search quality.")
@click.argument("dataset", required=False, type=click.Path(path_type=Path))
@AS_JSON
@options_of("search", only=("mode",))
@click.option(
    "--ablate",
    "with_ablation",
    is_flag=True,
    help="Measure the effect of each stage by leaving it out.",
)
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="KEY=VALUE",
    help="Compare with a second run that uses this setting; repeat to combine several.",
)
@click.option(
    "-n", "--sample", type=int, metavar="N", help="Use only N queries, for a quick estimate."
)
@click.option(
    "--off-topic",
    type=click.Path(path_type=Path),
    metavar="DATASET",
    help="Take the queries without an answer from DATASET [default: 40 built-in queries].",
)
@SET
def evaluate(
    dataset: Path | None,
    as_json: bool,
    mode: ModeName,
    with_ablation: bool,
    compared: tuple[str, ...],
    sample: int | None,
    off_topic: Path | None,
    assignments: tuple[str, ...],
) -> int:
    """Measure search quality with queries whose answers are known.

    DATASET is a .toml file with your own queries, a folder with dataset.toml, or a folder in BEIR
    format. Run `marklight eval` without DATASET to see how to write one.
    """
    from marklight.eval import evaluate
    from marklight.eval.dataset import HELP

    if dataset is None:
        click.echo(f"{HELP}", err=True)
        raise UsageError("No dataset given", "See above for how to write one")
    if not dataset.expanduser().exists():
        raise UsageError(
            f"No such dataset: {dataset}", "Run `marklight eval` to see how to write one"
        )
    with Bar() as bar:
        result = evaluate(
            dataset,
            mode=mode,
            assignments=assignments,
            compared=compared,
            with_ablation=with_ablation,
            sample_size=sample,
            off_topic=off_topic,
            progress=bar,
        )
    for notice in result.notices:
        note(notice)
    if as_json:
        show_json(result.to_dict())
    else:
        show(result.to_text())
    return 0
