"""Configuration of a library: the schema of all settings, their layers, and the search pipeline that they describe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight import settings
from marklight.engines import (
    EngineAddress,
    PostgresSettings,
    QdrantSettings,
    QueueSettings,
    ServerSettings,
)
from marklight.errors import SettingsError, UsageError
from marklight.ingest.discover import Discover
from marklight.ingest.recipe import Chunker
from marklight.library.settings_tables import (
    Ask,
    General,
    History,
    Index,
    Mcp,
    Model,
    Reranking,
    Search,
    Serve,
    Terminal,
)
from marklight.place import PROJECT_FILE
from marklight.search import pipeline
from marklight.settings import SHARED_FILE, Layer, Schema, Settings

if TYPE_CHECKING:
    pass


def stage_name(stage: type) -> str:
    """Return the name of a stage in settings and in `--explain`: `exact_duplicates` for `ExactDuplicates`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", stage.__name__).lower()


SKIPPABLE: tuple[type, ...] = (*pipeline.REWRITE, *pipeline.RETRIEVE, *pipeline.REFINE)
STAGES: tuple[type, ...] = (*SKIPPABLE, *pipeline.FUSE)

SCHEMA: Schema = {
    "": General,
    "model": Model,
    "reranker": Reranking,
    "ask": Ask,
    "index": Index,
    "serve": Serve,
    "mcp": Mcp,
    "terminal": Terminal,
    "history": History,
    "postgres": PostgresSettings,
    "qdrant": QdrantSettings,
    "queue": QueueSettings,
    "files": Discover,
    "chunk": Chunker,
    "search": Search,
    **{f"search.{stage_name(stage)}": stage for stage in STAGES},
}


OFTEN_CHANGED = (
    *("collections", "files.include", "files.exclude", "files.hidden", "chunk.skip_headings"),
    *("model.name", "model.threads", "model.address", "model.key_variable", "reranker.name"),
    *("ask.name", "search.preset", "search.recency.strength", "search.confidence.threshold"),
    *("search.per_document.max_passages", "search.skip", "engine", "serve.port", "serve.token"),
    "terminal.link",
)
"""The settings that `marklight settings` lists first."""


def search_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for one call as nested tables; raise UsageError unless all are of the table `search`."""
    if not isinstance(given, Mapping):
        raise UsageError(f"The settings must be a table, not {given!r}")
    from marklight.toml_values import tables

    changed = tables(given)
    if others := set(changed) - {"search"}:
        raise UsageError(
            f"A single search cannot change {', '.join(sorted(map(str, others)))}",
            "Open a library with these settings",
        )
    return changed


def read_settings(
    folder: Path | None,
    assignments: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Read all layers: defaults, user file, folder file, environment, `given` to open, `call`, `--set`.

    Of a folder's file that the user does not trust, only the settings in `folder_settings.ALLOWED` are honoured.
    """
    before = [*settings.from_user_file()]
    after = [
        *settings.from_environment(environ, SCHEMA),
        *(Layer("the call", values) for values in (given, call) if values),
        *settings.from_assignments(assignments),
    ]
    if folder and any(os.path.lexists(folder / name) for name in (PROJECT_FILE, SHARED_FILE)):
        from marklight.library import folder_settings

        result = folder_settings.combine(folder, before, after, SCHEMA)
    else:
        result = settings.combine([*before, *after], SCHEMA)
    result.build(Model, "model")
    result.build(Reranking, "reranker")
    if result.is_changed("ask"):
        result.build(Ask, "ask")
    if any(map(result.is_changed, ("postgres", "qdrant", "queue"))):
        server_settings(result)
    _check_stages([result["search.fuse"]], map(stage_name, pipeline.FUSE), "search.fuse")
    if result["search.preset"]:
        _check_stages([result["search.preset"]], pipeline.PRESETS, "search.preset")
    _check_stages(result["search.skip"], map(stage_name, SKIPPABLE), "search.skip")
    # A stage that runs anyway may be named: it was optional in an earlier version, or may become so.
    usable = {*pipeline.OFF, *map(stage_name, SKIPPABLE)}
    _check_stages(result["search.use"], usable, "search.use")
    return result


def server_settings(values: Settings, machine: str = "") -> ServerSettings:
    """Return the settings of engines on servers; `machine` is the id of this machine."""
    return ServerSettings(
        postgres=values.build(PostgresSettings, "postgres"),
        qdrant=values.build(QdrantSettings, "qdrant"),
        queue=values.build(QueueSettings, "queue"),
        machine=machine,
    )


def check_engine(values: Settings, address: EngineAddress) -> None:
    """Raise `SettingsError` if the settings do not fit the engine, or if its password can be read by others."""
    if address.has_password and values.sources["engine"].startswith("--set"):
        raise SettingsError(
            "The engine given with --set contains a password, which every user of this machine can read",
            "Set PGPASSWORD, ~/.pgpass or the variable MARKLIGHT_ENGINE instead",
        )
    if values["queue.embed"] == "workers" and not address.is_server:
        raise SettingsError(
            f'queue.embed = "workers" needs an engine on a server, but engine is {address}',
            'Set engine = "postgresql://…", or queue.embed = "here"',
        )


def compose_pipeline(values: Settings) -> pipeline.Pipeline:
    """Build the search pipeline: the stages in force, each with its own settings."""
    search = values.build(Search, "search")
    fusion = search.fuse
    left_out = {
        *search.skip,
        *(set(pipeline.OFF) - set(search.use)),
        *({stage_name(stage) for stage in pipeline.FUSE} - {fusion}),
    }

    def built(stages: Iterable[type]) -> dict[str, Any]:
        stage_by_name: dict[str, Any] = {}
        for name, stage in ((stage_name(stage), stage) for stage in stages):
            if name not in left_out:
                stage_by_name[name] = values.build(stage, f"search.{name}")
            elif values.is_changed(f"search.{name}"):
                # Not used, but a wrong value is an error all the same.
                values.build(stage, f"search.{name}")
        return stage_by_name

    return pipeline.Pipeline(
        rewrite=built(pipeline.REWRITE),
        retrieve=built(pipeline.RETRIEVE),
        fuse=built(pipeline.FUSE)[fusion],
        refine=built(pipeline.REFINE),
        factors=_factors(values),
        min_candidates=search.min_candidates,
    )


def _factors(values: Settings) -> dict[str, float]:
    """Return the user's factors on the weights of retrievers: those that are set, else those of the preset."""
    preset = pipeline.PRESETS.get(values["search.preset"], {})
    factors = {}
    for retriever in ("semantic", "keyword"):
        key = f"search.{retriever}_weight"
        is_set = values.sources[key] != settings.BUILT_IN
        factors[retriever] = values[key] if is_set else preset.get(retriever, values[key])
    if not any(factors.values()):
        raise SettingsError(
            "search.semantic_weight and search.keyword_weight are both 0",
            "Set one of them above 0",
        )
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def _check_stages(names: Iterable[str], known: Iterable[str], key: str) -> None:
    allowed = sorted(known)
    for name in names:
        if name not in allowed:
            raise SettingsError(
                f"{key} contains an unknown stage: {name!r}", f"Known: {', '.join(allowed)}"
            )
