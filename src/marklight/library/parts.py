"""What a library is made of: its place, settings, engines and upkeep, each opened when first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from marklight import engines
from marklight.errors import UsageError
from marklight.ingest.discover import Discover
from marklight.ingest.history.repository import Repository
from marklight.ingest.pipeline import Ingest
from marklight.ingest.recipe import Chunker
from marklight.library.bookmark import Bookmark
from marklight.library.compose import Index, Serve, Terminal, compose_pipeline, read_settings
from marklight.library.concurrency import SearchThreadPool, SingleFlight
from marklight.library.files import Files
from marklight.library.history import open_engine
from marklight.library.locate import index_address, nested_libraries, path_of, scope_of
from marklight.library.model_selection import ModelSelection
from marklight.library.upkeep import Freshness, Upkeep
from marklight.once import once, taken
from marklight.place import Place, locate
from marklight.ports import Engine
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings, merged, tables

if TYPE_CHECKING:
    from marklight.library.following import Following

DEFAULT_COLLECTION = "default"
"""The one collection of a library that names none; the same wherever the folder moves to."""
MADE_OF_ENGINES = ("ingest", "reading")
ENGINES = ("engine", "commits_engine")


class Parts:
    """The parts, for the verbs to work with; safe to ask for from several threads."""

    def __init__(
        self,
        folder: Path | str | None = None,
        given: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
    ) -> None:
        self.threads = SearchThreadPool()
        self.refreshes: SingleFlight[Freshness] = SingleFlight()
        self.embedding, self.embedding_commits = Lock(), Lock()
        self.repositories: Mapping[str, Repository] = {}
        """Those that hold the collections, once they were asked for."""
        self.following: Following | None = None
        """Who follows the files on the disk, where somebody does; they may leave at any moment."""
        self.place: Place = locate(Path(folder) if folder is not None else None)
        self._given, self._assignments = dict(given or {}), tuple(assignments)
        self.settings: Settings = read_settings(self.place.folder, assignments, given)
        self.pipeline = compose_pipeline(self.settings)
        self.models = ModelSelection(self.settings)
        self.history_notice = ""
        self.address, self.notice = index_address(self.place.folder, self.settings["engine"])

    @once
    def collections(self) -> Mapping[str, Path]:
        """Names and folders."""
        named = self.settings["collections"] or {DEFAULT_COLLECTION: "."}
        return {
            name: path_of(folder, self.place.folder, f"collections.{name}")
            for name, folder in named.items()
        }

    @once
    def files(self) -> Files:
        """What stands in them."""
        return Files(self.collections)

    @once
    def scope(self) -> tuple[tuple[str, str], ...]:
        """The part of the library that was named by its folder; empty for all of it."""
        return scope_of(self.collections, self.place.part) if self.place.part else ()

    @once
    def serve(self) -> Serve:
        """How it is served to many."""
        return self.settings.build(Serve, "serve")

    @once
    def limits(self) -> Index:
        """How long things may take."""
        return self.settings.build(Index, "index")

    @once
    def link_address(self) -> str:
        """What a click on a place in a terminal opens."""
        return self.settings.build(Terminal, "terminal").address

    @once
    def engine(self) -> Engine:
        """Where the index lives."""
        self.threads.check_open()
        return engines.open(self.address)

    @once
    def commits_engine(self) -> Engine:
        """Where the index of commits lives."""
        self.threads.check_open()
        engine, self.history_notice = open_engine(self.address)
        return engine

    @once
    def reading(self) -> Ingest:
        """Files to text in the index; needs no model."""
        return Ingest(
            engine=self.engine,
            collections=self.collections,
            discover=self.settings.build(Discover, "files"),
            chunker=self.settings.build(Chunker, "chunk"),
            embedder=None,
            max_bytes=self.settings["index.max_bytes"],
        )

    @once
    def ingest(self) -> Ingest:
        """Files to text and vectors in the index."""
        return replace(self.reading, embedder=self.models.embedder)

    @once
    def bookmark(self) -> Bookmark:
        """Where the last look at the files stopped."""
        return Bookmark(engines.parse_address(self.address).folder)

    def upkeep(self, ingest: Ingest) -> Upkeep:
        """Who keeps the index true, with or without vectors."""
        following = self.following
        followed = following is not None and following.watching
        return Upkeep(ingest, self.limits, self.bookmark, self.refreshes, self.embedding, followed)

    def pipeline_with(
        self, given: Mapping[str, Any] | None, assignments: Sequence[str] = ()
    ) -> Pipeline:
        """The stages with some settings changed for one call; other parts are made already."""
        given = given or {}
        if not given and not assignments:
            return self.pipeline
        if not isinstance(given, Mapping):
            raise UsageError(f"settings are a table, not {given!r}")
        asked = tables(given)
        if others := set(asked) - {"search"}:
            raise UsageError(
                f"a single search cannot change {', '.join(sorted(map(str, others)))}",
                "Open a library with it",
            )
        own = merged(tables(self._given), asked)
        written = (*self._assignments, *assignments)
        return compose_pipeline(read_settings(self.place.folder, written, own))

    def notices(self) -> tuple[str, ...]:
        """What whoever asks should know of where things stand."""
        places = filter(None, (self.notice, self.history_notice))
        return (*self.settings.notices, *places, *self.files.missing())

    def nested_libraries(self) -> list[str]:
        """Return notices about other libraries above and below this one, for when it is made."""
        return nested_libraries(self.place.folder)

    def again(self) -> Self:
        """The same library opened anew, with settings as their files say now."""
        return type(self)(self.place.folder, self._given, self._assignments)

    def close(self) -> None:
        """Give back what is open; searches that run are awaited or end with a clear error."""
        self.threads.close()
        for name in MADE_OF_ENGINES:
            taken(self, name)
        for name in ENGINES:
            if engine := taken(self, name):
                engine.close()
