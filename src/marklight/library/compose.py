"""Settings to parts: the schema of all settings, and the pipeline that they describe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from marklight import settings
from marklight.errors import SettingsError
from marklight.ingest.discover import Discover
from marklight.ingest.recipe import Chunker
from marklight.library import folder_settings
from marklight.library.model_settings import Model, Reranking
from marklight.search import pipeline
from marklight.settings import Layer, Schema, Settings, Within
from marklight.trust import read_folder_file

A_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class General:
    """Settings of the library as a whole."""

    engine: str = ""
    """Where the index lives: `file:PATH` or `memory:`; empty means `.marklight/` beside the documents."""
    collections: Mapping[str, str] = field(default_factory=dict)
    """Names and folders, relative to the library's; without any, the library's folder is the one collection."""


@dataclass(frozen=True, slots=True)
class Index:
    """How the index is kept."""

    max_bytes: Annotated[int, Within(1)] = 20_000_000
    """Larger files are refused: at this size a file is data, not a document."""
    wait_seconds: Annotated[float, Within(0, A_DAY_SECONDS)] = 10.0
    """How long to wait for another process that is writing."""
    first_search_seconds: Annotated[float, Within(0, A_DAY_SECONDS)] = 20.0
    """How long the first search in a new library may embed before it answers."""
    search_seconds: Annotated[float, Within(0, A_DAY_SECONDS)] = 3.0
    """How long any other search may read and embed what is new before it answers."""
    look_ms: Annotated[float, Within(1, 60_000)] = 50.0
    """How long a search may compare files with the index; of a huge tree the next one sees the rest."""
    debounce_ms: Annotated[float, Within(0, 60_000)] = 300.0
    """While files are followed: how long it must be quiet before what changed is read."""
    reconcile_seconds: Annotated[float, Within(1, A_DAY_SECONDS)] = 600.0
    """While files are followed: how often everything is compared, whatever the system has told."""
    poll_seconds: Annotated[float, Within(0.1, 3600)] = 5.0
    """The same where the system does not tell what changes."""


@dataclass(frozen=True, slots=True)
class Search:
    """Which stages answer a question."""

    fuse: str = "learned"
    """Which fusion: `learned`, `score_aware`, `weighted_sum` or `reciprocal`."""
    skip: tuple[str, ...] = ()
    """Stages to leave out."""
    use: tuple[str, ...] = ()
    """Stages to take in that are left out otherwise: `graph`, `calibrate`, `diversity`."""


@dataclass(frozen=True, slots=True)
class Serve:
    """How a library is served to many."""

    host: str = "127.0.0.1"
    """The address to listen at; any but loopback needs a token."""
    port: Annotated[int, Within(0, 65_535)] = 7433
    """The port; 0 takes a free one."""
    token: str = ""
    """What others must send as `Authorization: Bearer …`; empty asks for none, which only loopback may."""
    searches: Annotated[int, Within(1, 1000)] = 16
    """Questions at work at once; more wait."""
    wait_seconds: Annotated[float, Within(0, 600)] = 5.0
    """How long one waits for its turn before it is told to come again."""
    timeout_seconds: Annotated[float, Within(0.1, 600)] = 20.0
    """How long a client may take to send a request."""
    idle_minutes: Annotated[float, Within(0.01, 525_600)] = 30.0
    """A daemon that a client started leaves after so long without a question."""
    rest_minutes: Annotated[float, Within(0.01, 525_600)] = 15.0
    """After so long without a question models are given back; the next one loads them again."""
    start: bool = False
    """Whether commands and assistants start a daemon where none runs."""


EDITORS = {
    "vscode": "vscode://file{path}:{line}",
    "cursor": "cursor://file{path}:{line}",
    "zed": "zed://file{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "obsidian": "obsidian://open?path={path}",
}
"""What opens a file at a line in editors that have an address for it."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What people see in a terminal."""

    link: str = ""
    """What a click on a place opens: `vscode`, `cursor`, `zed`, `idea`, `textmate`, `obsidian`, or an address with `{path}` and `{line}`; empty means the file itself."""

    def __post_init__(self) -> None:
        address = self.address
        fits = "{path}" in address and "://" in address and address.isascii()
        if address and not (fits and address.isprintable() and " " not in address):
            raise SettingsError(
                f"terminal.link = {self.link!r} is no address with {{path}}",
                f"Known: {', '.join(EDITORS)}, or one such as editor://open?file={{path}}",
            )

    @property
    def address(self) -> str:
        """With the names of editors replaced by their addresses."""
        return EDITORS.get(self.link, self.link)


@dataclass(frozen=True, slots=True)
class History:
    """How commits are read."""

    diff_lines: Annotated[int, Within(0, 10_000)] = 200
    """Lines of each commit's diff that are searched; 0 for messages alone."""
    read_seconds: Annotated[float, Within(0, A_DAY_SECONDS)] = 60.0
    """How long a question may read commits before it is answered; the next one goes on from there."""


def stage_name(stage: type) -> str:
    """A stage's one name, in settings, in `--explain` and as its file: `ExactDuplicates` is `exact_duplicates`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", stage.__name__).lower()


SKIPPABLE: tuple[type, ...] = (*pipeline.REWRITE, *pipeline.RETRIEVE, *pipeline.REFINE)
STAGES: tuple[type, ...] = (*SKIPPABLE, *pipeline.FUSE)

SCHEMA: Schema = {
    "": General,
    "model": Model,
    "reranker": Reranking,
    "index": Index,
    "serve": Serve,
    "terminal": Terminal,
    "history": History,
    "files": Discover,
    "chunk": Chunker,
    "search": Search,
    **{f"search.{stage_name(stage)}": stage for stage in STAGES},
}


def read_settings(
    folder: Path | None,
    assignments: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    call: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Combine all layers for a folder: built-in, user, project, environment, then those of the call itself.

    Of a folder's file that the user does not trust only the settings in `folder_settings.ALLOWED` count.
    """
    file = read_folder_file(folder) if folder else None
    allowed, refused = folder_settings.split(file, SCHEMA)
    before = [*settings.from_user_file()]
    after = [
        *settings.from_environment(environ, SCHEMA),
        *(Layer("the call", values) for values in (given, call) if values),
        *settings.from_assignments(assignments),
    ]
    found = settings.combine([*before, *allowed, *after], SCHEMA)
    if file and file.layer and refused:
        whole = settings.combine([*before, file.layer, *after], SCHEMA)
        missed = (
            one for one in refused if one.in_force(whole.values) != one.in_force(found.values)
        )
        found = replace(found, ignored=tuple(missed))
    ignored = folder_settings.notices(file, found.ignored)
    found = replace(found, notices=(*found.notices, *ignored))
    found.build(Model, "model")
    found.build(Reranking, "reranker")
    _demand_known([found["search.fuse"]], map(stage_name, pipeline.FUSE), "search.fuse")
    _demand_known(found["search.skip"], map(stage_name, SKIPPABLE), "search.skip")
    _demand_known(found["search.use"], pipeline.OFF, "search.use")
    return found


def compose_pipeline(found: Settings) -> pipeline.Pipeline:
    """Build the search pipeline: the stages in force, each with its own settings."""
    fusion = found["search.fuse"]
    left_out = {
        *found["search.skip"],
        *(set(pipeline.OFF) - set(found["search.use"])),
        *({stage_name(stage) for stage in pipeline.FUSE} - {fusion}),
    }

    def built(stages: Iterable[type]) -> dict[str, Any]:
        stage_by_name: dict[str, Any] = {}
        for name, stage in ((stage_name(stage), stage) for stage in stages):
            if name not in left_out:
                stage_by_name[name] = found.build(stage, f"search.{name}")
            elif found.is_changed(f"search.{name}"):
                # Not used, but a wrong value is an error all the same.
                found.build(stage, f"search.{name}")
        return stage_by_name

    return pipeline.Pipeline(
        rewrite=built(pipeline.REWRITE),
        retrieve=built(pipeline.RETRIEVE),
        fuse=built(pipeline.FUSE)[fusion],
        refine=built(pipeline.REFINE),
    )


def _demand_known(names: Iterable[str], known: Iterable[str], key: str) -> None:
    allowed = sorted(known)
    for name in names:
        if name not in allowed:
            raise SettingsError(
                f"{key} names an unknown stage {name!r}", f"Known: {', '.join(allowed)}"
            )
