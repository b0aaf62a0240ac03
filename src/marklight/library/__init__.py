"""The library: a folder of documents with its index, and every operation that the surfaces offer."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Literal, Self

from marklight.engines import HISTORY, parse_address
from marklight.engines import open as open_engine
from marklight.errors import UsageError
from marklight.ingest.discover import Discover
from marklight.ingest.pipeline import Ingest
from marklight.ingest.recipe import Chunker
from marklight.ingest.scan_record import FILE as SCAN_FILE
from marklight.ingest.scan_record import ScanState
from marklight.lazy import once, pop_cached
from marklight.library import configuration
from marklight.library.configuration import Index, Serve, Terminal, compose_pipeline
from marklight.library.model_selection import ModelSelection
from marklight.library.refresh import (
    MAX_SEARCHES,
    CollectionFiles,
    RefreshResult,
    SingleFlight,
)
from marklight.library.validation import check_names, scope_of
from marklight.operations import OPERATIONS, Operations
from marklight.place import (
    Place,
    index_address,
    library_records,
    locate,
    machine_id,
    resolve_path,
)
from marklight.ports import Engine, no_progress
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings

if TYPE_CHECKING:
    from marklight.engines import ServerSettings
    from marklight.ingest.git import Repository
    from marklight.library.shared_index import SharedIndex
    from marklight.library.watching import Watcher
    from marklight.model import Vector
    from marklight.report import Report

__all__ = ["Library"]

DEFAULT_COLLECTION = "default"
"""Name of the only collection if the settings name none; independent of the folder's name."""


IMPLEMENTATIONS = {
    "search": "search.search",
    "ask": "ask.ask",
    "list_documents": "search.list_documents",
    "commits": "history.search_commits",
    "get": "documents.get",
    "outline": "documents.outline",
    "page": "documents.page",
    "links": "documents.links",
    "related": "documents.related",
    "graph": "documents.graph",
    "resolve": "documents.resolve",
    "documents": "documents.list_documents",
    "tags": "documents.tags",
    "index": "indexing.index",
    "status": "indexing.status",
}
"""Functions of this package that execute the operations."""


PUBLIC = ("close", "collections", "ignored", "place", "settings", "watch")
"""Public names of a library besides the operations."""
DEFAULT_HOOKS = {"progress": no_progress, "check_cancelled": lambda: None}


class Library(Operations):
    """A folder of documents with its index. Thread-safe; engines and models are opened on first use."""

    is_remote: Literal[False] = False
    """True for a library whose daemon executes the operations."""

    def __init__(
        self,
        folder: Path | str | None = None,
        given: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
    ) -> None:
        self.place: Place = locate(Path(folder) if folder is not None else None)
        self._given, self._assignments = dict(given or {}), tuple(assignments)
        self.settings: Settings = configuration.read_settings(
            self.place.folder, assignments, self._given
        )
        self.pipeline = compose_pipeline(self.settings)
        self.address = parse_address(
            index_address(self.place.folder, self.settings["engine"], self.settings["index.place"])
        )
        configuration.check_engine(self.settings, self.address)
        self.models = ModelSelection(self.settings)
        self.searches = BoundedSemaphore(MAX_SEARCHES)
        """Held by each search while it reads the index."""
        self.refreshes: SingleFlight[RefreshResult] = SingleFlight()
        self.embedding, self.embedding_commits = Lock(), Lock()
        self.repositories: Mapping[str, Repository] = {}
        """Git repositories of the collections, once they are known."""
        self.has_documents = False
        """True once the index was seen with documents."""
        self.embedded_generation = 0
        """The last generation in which nothing waited for a vector."""
        self.watcher: Watcher | None = None
        """The watcher of the files, while one runs; it may stop at any time."""
        self.embeds_later = False
        """True if a process in the background embeds what a search leaves; a search then embeds for a short time only."""
        self._closed = False

    def __dir__(self) -> list[str]:
        """Return the names that stay as they are; all other attributes are for Marklight itself."""
        return sorted({*OPERATIONS, *PUBLIC})

    # Resources

    @once
    def collections(self) -> Mapping[str, Path]:
        """Return the folders of the collections by name."""
        names = self.settings["collections"] or {DEFAULT_COLLECTION: "."}
        check_names(names)
        return {
            name: resolve_path(folder, self.place.folder, f"collections.{name}")
            for name, folder in names.items()
        }

    @once
    def files(self) -> CollectionFiles:
        """Return the files of the collections."""
        return CollectionFiles(self.collections, self.address.is_server)

    @once
    def scope(self) -> tuple[tuple[str, str], ...]:
        """Return the scope of all searches if the library was opened by a folder inside it; else empty."""
        return scope_of(self.collections, self.place.part) if self.place.part else ()

    @once
    def serve(self) -> Serve:
        """Return the settings of the server."""
        return self.settings.build(Serve, "serve")

    @once
    def limits(self) -> Index:
        """Return the settings of the index: sizes and times."""
        return self.settings.build(Index, "index")

    @once
    def link_address(self) -> str:
        """Return the address template that a click on a path in a terminal opens."""
        return self.settings.build(Terminal, "terminal").address

    @once
    def server_settings(self) -> ServerSettings | None:
        """Return the settings of an engine on a server; None for others."""
        if not self.address.is_server:
            return None
        return configuration.server_settings(self.settings, machine_id())

    @once
    def shared(self) -> SharedIndex | None:
        """Return what is different for an index that other machines use too; None for others."""
        if not self.address.is_server:
            return None
        from marklight.library.shared_index import SharedIndex

        return SharedIndex(self)

    @once
    def engine(self) -> Engine:
        """Return the engine of the documents."""
        self._check_open()
        return open_engine(self.address, self.server_settings, self._recorded_folder)

    @once
    def commits_engine(self) -> Engine:
        """Return the engine of the commits."""
        self._check_open()
        address = self.address.beside(HISTORY)
        return open_engine(address, self.server_settings, self._recorded_folder)

    @property
    def _recorded_folder(self) -> Path | None:
        """Return the folder to record as a library; None if the engine is given, as for an evaluation."""
        return None if self.settings["engine"] else self.place.folder

    @once
    def text_ingest(self) -> Ingest:
        """Return the ingest pipeline without a model: files to text in the index."""
        return Ingest(
            engine=self.engine,
            collections=self.collections,
            discover=self.settings.build(Discover, "files"),
            chunker=self.settings.build(Chunker, "chunk"),
            embedder=None,
            max_bytes=self.settings["index.max_bytes"],
            stored=self.stored_vectors,
            scans=ScanState(self.address.folder and self.address.folder / SCAN_FILE),
        )

    @once
    def ingest(self) -> Ingest:
        """Return the ingest pipeline: files to text and vectors in the index."""
        models = self.models
        return replace(self.text_ingest, embedder=models.embedder, second=models.multilingual)

    def stored_vectors(self, model: str, digests: Sequence[str]) -> Mapping[str, Vector]:
        """Return vectors by content digest from indexes of this folder in other places and of folders that no longer exist."""
        from marklight.engines.embedded.vector_files import stored_vectors

        vectors: dict[str, Vector] = {}
        for index, record in library_records():
            if index != self.address.folder and (
                record.is_orphaned or record.is_of(self.place.folder)
            ):
                for folder in (index, index / HISTORY):
                    vectors |= stored_vectors(folder, model, digests)
        return vectors

    def settings_with(
        self, given: Mapping[str, Any] | None, assignments: Sequence[str] = ()
    ) -> Settings:
        """Return the settings with some of the table `search` changed for one call."""
        if not given and not assignments:
            return self.settings
        changed = configuration.search_settings(given or {})
        written = (*self._assignments, *assignments)
        return configuration.read_settings(self.place.folder, written, self._given, changed)

    def pipeline_of(self, settings: Settings) -> Pipeline:
        """Return the search pipeline that some settings describe."""
        return self.pipeline if settings is self.settings else compose_pipeline(settings)

    def notices(self, settings: Settings | None = None) -> tuple[str, ...]:
        """Return notices about settings and missing folders."""
        missing = self.shared.missing_notices() if self.shared else self.files.missing()
        return (*(settings or self.settings).notices, *missing)

    @property
    def indexes_here(self) -> bool:
        """Return true if changes of files on this machine are indexed; on a server that takes rights and a folder."""
        return self.shared is None or self.shared.indexes_here

    def reopened(self) -> Self:
        """Return the same library opened again, with the settings as their files are now."""
        return type(self)(self.place.folder, self._given, self._assignments)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("This library is closed", "Open it again")

    def close(self) -> None:
        """Close the engines; running searches end with an error."""
        self._closed = True
        pop_cached(self, "ingest")
        if ingest := pop_cached(self, "text_ingest"):
            ingest.save_scan()
        for name in ("engine", "commits_engine"):
            if engine := pop_cached(self, name):
                engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Operations

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Validate the arguments of a call in Python and execute an operation."""
        return self.execute(name, OPERATIONS[name].check(arguments))

    def execute(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Execute an operation with validated arguments; hooks that are not given have their defaults."""
        module, _, function = IMPLEMENTATIONS[name].partition(".")
        given = {**OPERATIONS[name].hooks, **arguments}
        for hook, default in DEFAULT_HOOKS.items():
            if hook in given and given[hook] is None:
                given[hook] = default
        # Imported on first use: a search needs few of them.
        implementation = getattr(import_module(f"marklight.library.{module}"), function)
        return implementation(self, **given)

    def watch(self) -> Generator[Report, None, None]:
        """Watch the files: yield a report for each batch of changes; errors are reports with notices only."""
        from marklight.library.watching import watch

        return watch(self)

    def ignored(self, path: Path | str) -> str:
        """Return why a file is not indexed; empty if it is.

        A path is relative to the current folder, else to the folder of a collection.
        """
        from marklight.library.indexing import ignored

        return ignored(self, path)
