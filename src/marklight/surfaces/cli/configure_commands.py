"""Commands that configure and measure: settings, models (list, pull, verify, import) and eval."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import UsageError
from marklight.formatting import one_line
from marklight.operations import ModeName
from marklight.place import complete_commands
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, SET, in_library, open_own, options_of
from marklight.surfaces.cli.output import Bar, complain, note, note_all, show, show_json

if TYPE_CHECKING:
    from marklight.models.record import Kind, ModelRecord
    from marklight.models.remote import Server
    from marklight.models.store import ModelRow
    from marklight.settings import Ignored, Settings
    from marklight.trust import Record


SECRETS = ("serve.token",)
"""Settings whose values are never printed."""


@click.command(short_help="List the settings; trust the settings file of a folder.")
@in_library
@click.option("--trust", is_flag=True, help="Trust the settings file of the folder.")
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--trusted", is_flag=True, help="List trusted folders.")
@AS_JSON
@SET
def settings(
    folder: Path | None,
    trust: bool,
    revoke: bool,
    trusted: bool,
    as_json: bool,
    assignments: tuple[str, ...],
) -> int:
    """List every setting with its value and its source; with a name such as search.recency in place of PATH, only those.

    A folder's marklight.toml or pyproject.toml can change only ranking, passage sizes and which documents
    are indexed. Models, servers, the location of the index, paths outside the folder and all other settings
    are ignored until you trust the file, and marked in the list. --trust prints the settings that it enables;
    use it again after the file changes. If a setting is wrong, the built-in values are listed.
    """
    if trust + revoke + trusted > 1:
        raise click.UsageError("Only one of --trust, --revoke and --trusted can be used")
    if trusted:
        return _list_trusted(as_json)
    if trust or revoke:
        return (_trust if trust else _revoke)(folder, as_json)
    return _list(folder, as_json, assignments)


def _list(folder: Path | None, as_json: bool, assignments: tuple[str, ...]) -> int:
    from marklight.errors import SettingsError
    from marklight.library.configuration import OFTEN_CHANGED

    wrong = False
    wanted = [key for key in sorted(_built_in().values) if f"{key}.".startswith(f"{folder}.")]
    if folder is None or folder.exists():
        wanted = []
    elif wanted:
        folder = None
    try:
        with open_own(folder, assignments) as library:
            values = library.settings
    except SettingsError as error:
        if as_json:
            raise
        # The error refers to this list, so it must not replace it.
        complain(str(error))
        values, wrong = _built_in(), True
    note_all(values.notices)
    ignored = ignored_values(values.ignored)
    if as_json:
        rows = {
            key: {
                "value": masked(key, values.values[key]),
                "source": values.sources[key],
                **({"ignored": ignored[key]} if key in ignored else {}),
            }
            for key in wanted or sorted(values.values)
        }
        show_json(rows)
        return 0
    lines = {
        key: f"{value_text(key, value)}  ({values.sources[key]})"
        for key, value in values.values.items()
    }
    for key, row in ignored.items():
        value = value_text(key, row["value"])
        lines[key] += f"  [ignored: {value} in {row['source']}: {row['reason']}]"
    first = wanted or [key for key in OFTEN_CHANGED if key in lines]
    show(render.table({key: one_line(lines[key]) for key in first}))
    if not wanted:
        show("\nOther settings, which few users change:\n")
        show(render.table({key: one_line(lines[key]) for key in sorted(set(lines) - set(first))}))
    return SettingsError.exit_code if wrong else 0


def _built_in() -> Settings:
    from marklight.library.configuration import SCHEMA
    from marklight.settings import combine

    return combine((), SCHEMA)


def masked(key: str, value: Any) -> Any:
    """Return the value, or a placeholder if it is a secret; an address of an engine without its password."""
    if key == "engine":
        from marklight.engines import shown_address

        return shown_address(value)
    return "…" if key in SECRETS and value else value


def value_text(key: str, value: Any) -> str:
    """Return the value on one line, as JSON."""
    value = masked(key, value)
    return render.to_json(list(value) if isinstance(value, tuple) else value, indent=None)


def ignored_values(ignored: Iterable[Ignored]) -> dict[str, dict[str, Any]]:
    """Return the ignored settings of a folder's file by key; entries of one table are merged."""
    rows: dict[str, dict[str, Any]] = {}
    for setting in ignored:
        origin = {"source": setting.source, "reason": setting.reason}
        if setting.entry:
            row = rows.setdefault(setting.key, {"value": {}, **origin})
            row["value"][setting.entry] = setting.value
        else:
            rows[setting.key] = {"value": masked(setting.key, setting.value), **origin}
    return rows


def _trust(path: Path | None, as_json: bool) -> int:
    from marklight import trust as store
    from marklight.errors import NotFound, SettingsError
    from marklight.library import folder_settings
    from marklight.library.configuration import SCHEMA
    from marklight.place import locate

    folder = locate(path.parent if path and path.is_file() else path).folder
    file = store.read_folder_file(folder)
    if file is None:
        raise NotFound(
            f"No settings file in {folder}",
            "Name a folder that contains marklight.toml or pyproject.toml",
        )
    if file.problem:
        raise SettingsError(f"Cannot trust {file.path}: it {file.problem}")
    values = {
        key: row["value"]
        for key, row in ignored_values(folder_settings.refused(file, SCHEMA)).items()
    }
    if values:
        store.trust(file)
    if as_json:
        show(render.to_json({"folder": str(folder), "file": str(file.path), "settings": values}))
        return 0
    for key, value in values.items():
        show(one_line(f"{key} = {value_text(key, value)}"))
    if values:
        undo = f"marklight settings {shlex.quote(str(folder))} --revoke"
        note(f"{file.path} is trusted until it changes. Undo with `{undo}`")
        _note_daemon(folder)
    else:
        note(f"All settings in {file.path} already apply without trust. Nothing was changed")
    return 0


def _revoke(path: Path | None, as_json: bool) -> int:
    from marklight import trust as store
    from marklight.errors import NotFound
    from marklight.place import locate

    # A folder that no longer exists can still be named.
    exact = path is not None and store.record_of(path) is not None
    folder = Path(os.path.realpath(path)) if path and exact else locate(path).folder
    if not store.revoke(folder):
        raise NotFound(
            f"{folder} is not trusted", "List trusted folders with `marklight settings --trusted`"
        )
    if as_json:
        show(render.to_json({"folder": str(folder), "revoked": True}))
        return 0
    show(one_line(f"{folder} is no longer trusted"))
    _note_daemon(folder)
    return 0


def _note_daemon(folder: Path) -> None:
    """Print a note if a daemon runs: it keeps the address and the token that it was started with."""
    from marklight.surfaces.daemon import state_files

    if any(True for _ in state_files(folder)):
        text = (
            "A daemon is running. Changes to serve.host, serve.port or serve.token apply after a restart:"
            " `marklight serve --stop`, then `marklight serve`"
        )
        note(complete_commands(text, folder))


def _list_trusted(as_json: bool) -> int:
    from marklight import trust as store

    rows = [_trust_row(record) for record in store.records()]
    if as_json:
        show(render.to_json(rows))
        return 0
    for row in rows:
        show(one_line(f"{row['folder']}  ({row['file']}, {row['state']}, since {row['trusted']})"))
    if not rows:
        note("No folder is trusted")
    return 0


def _trust_row(record: Record) -> dict[str, Any]:
    """Return a record with its state: trusted, changed or missing."""
    from marklight import trust as store
    from marklight.errors import SettingsError

    try:
        file = store.read_folder_file(Path(record.folder))
        state = "missing" if file is None else "trusted" if store.is_trusted(file) else "changed"
    except SettingsError:  # the file is no longer valid TOML
        state = "changed"
    return {
        "folder": record.folder,
        "file": record.file,
        "state": state,
        "trusted": record.trusted,
    }


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
    note_all(result.notices)
    if as_json:
        show_json(result.to_dict())
    else:
        show(result.to_text())
    return 0
