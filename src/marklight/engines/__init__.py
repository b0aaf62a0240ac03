"""Engines by address: parse `file:PATH` and `postgresql://…`, and open the engine with its settings."""

from __future__ import annotations

import os
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from marklight.errors import SettingsError, StoreError
from marklight.lazy import dataclass
from marklight.settings import Within

if TYPE_CHECKING:
    from marklight.ports import Engine

SERVER_SCHEMES = ("postgresql", "postgres")
SCHEMES = ("file", *SERVER_SCHEMES)
DEFAULT_LIBRARY = "marklight"
HISTORY = "history"
"""Name of the index of commits beside that of the documents."""
KNOWN = "Use file:PATH or postgresql://HOST/DATABASE"

A_DAY_SECONDS = 86_400


class Host(NamedTuple):
    """A server by name or IP address, and its port."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class EngineAddress(NamedTuple):
    """Scheme and location of an index. Its text never contains a password."""

    scheme: str
    folder: Path | None = None
    """Folder of the index; None if the engine does not keep it in files."""
    dsn: str = ""
    """Connection URI for libpq, without our own parameters. It may contain a password."""
    server: str = ""
    """The URI as it may be shown: user, hosts, database and parameters that are no secrets."""
    library: str = ""
    """PostgreSQL schema of the index."""
    vectors: tuple[Host, ...] = ()
    """Qdrant nodes with their gRPC ports; empty if PostgreSQL stores the vectors."""
    has_password: bool = False

    @property
    def is_server(self) -> bool:
        """Return true if other machines can use the index too."""
        return bool(self.dsn)

    def beside(self, name: str) -> EngineAddress:
        """Return the address of another index: inside the folder of this one, or on the same server."""
        if self.folder is not None:
            return self._replace(folder=self.folder / name)
        return self._replace(library=f"{self.library}_{name}")

    def __str__(self) -> str:
        if not self.is_server:
            return f"{self.scheme}:{self.folder or ''}"
        ours = [f"library={self.library}"] if self.library != DEFAULT_LIBRARY else []
        ours += [f"vectors=qdrant://{','.join(map(str, self.vectors))}"] if self.vectors else []
        join = "&" if "?" in self.server else "?"
        return self.server + (join + "&".join(ours) if ours else "")

    def __repr__(self) -> str:
        return f"EngineAddress({str(self)!r})"


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The engine on PostgreSQL, for `engine = "postgresql://…"`."""

    connections: Annotated[int, Within(2, 1000)] = 8
    """Maximum number of connections of one process for searches and commits; maintenance opens up to three more for a moment."""
    lexical_cache_mb: Annotated[float, Within(0, 100_000)] = 64.0
    """Maximum memory of one process for its cache of the lexical index."""
    exact_below: Annotated[int, Within(0, 100_000_000)] = 10_000
    """Number of passages below which a library has no vector index (HNSW), and all vectors are compared; 0 always uses the index."""
    # Of the best 20 of the Kubernetes pages, 40 miss 1.6 of 100 (2.2 with a filter), and 120 miss 0.6 (1.4).
    hnsw_ef_search: Annotated[int, Within(1, 1000)] = 120
    """Candidates beyond those requested that a search of the vector index compares; a higher value misses fewer of the best passages and takes longer."""
    staleness_seconds: Annotated[float, Within(0, A_DAY_SECONDS)] = 30.0
    """Maximum time that a replica may be behind the primary; searches do not use a replica that is further behind."""


@dataclass(frozen=True, slots=True)
class QdrantSettings:
    """The lexical and vector index on Qdrant, for an engine address with `vectors=qdrant://…`."""

    tls: bool = False
    """Connect with TLS (https)."""
    ca_file: str = ""
    """File with the certificates (PEM) of the authorities that sign those of the nodes; empty for the usual public ones."""
    shards: Annotated[int, Within(0, 10_000)] = 0
    """Shards of a new collection; 0 creates two for each node of a cluster, one on a single node."""
    replicas: Annotated[int, Within(1, 100)] = 2
    """Copies of each shard of a new collection; at most one on each node."""
    quantization: Literal["none", "scalar", "binary"] = "none"
    """Compression of the vectors that are searched: `none`, `scalar` (8 bits) or `binary` (1 bit). Results are scored again with the full vectors."""
    on_disk: bool = False
    """Keep the full vectors on disk instead of in memory."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The queue of passages to embed, in PostgreSQL, and the workers that take from it."""

    embed: Literal["here", "workers"] = "here"
    """Process that embeds new passages: `here` (the one that indexes them) or `workers` (`marklight worker`)."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of engines on servers, and the id of this machine."""

    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    qdrant: QdrantSettings = field(default_factory=QdrantSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    machine: str = ""
    """Random id of this user on this machine: each machine has its own file times of the same documents."""


def has_scheme(address: str) -> bool:
    """Return true for an address with a known scheme, false for the path of a folder."""
    return address.startswith(tuple(f"{scheme}:" for scheme in SCHEMES))


def parse_address(address: str) -> EngineAddress:
    """Parse an address with a scheme; raise SettingsError for an invalid one."""
    scheme, _, location = address.partition(":")
    if scheme == "file" and location:
        return EngineAddress(scheme, Path(location))
    if scheme in SERVER_SCHEMES:
        from marklight.engines.server import parse

        return parse(address)
    # Without the address, which may contain a password after a mistyped scheme, or be `password=… host=…` without one.
    if not location or not scheme.replace("+", "").isalnum():
        raise SettingsError("engine is not an address with a scheme", KNOWN)
    raise SettingsError(f"engine has an unknown scheme: {scheme[:20]!r}", KNOWN)


def shown_address(address: str) -> str:
    """Return an address as it may be printed, without its password; `…` if the password cannot be identified."""
    if not address.startswith(tuple(f"{scheme}:" for scheme in SERVER_SCHEMES)):
        return "…" if "@" in address and "://" in address else address
    try:
        return str(parse_address(address))
    except SettingsError:
        return "…"


def open(
    address: str | os.PathLike[str] | EngineAddress,
    settings: ServerSettings | None = None,
    documents: Path | None = None,
) -> Engine:
    """Open the engine at an address; one without a scheme is the path of a folder.

    An index in files records the folder of its documents, if it is given.
    """
    if isinstance(address, EngineAddress):
        parsed = address
    elif isinstance(address, str) and has_scheme(address):
        parsed = parse_address(address)
    else:
        parsed = EngineAddress("file", Path(address))
    if parsed.folder is not None:
        from marklight.engines.embedded.engine import EmbeddedEngine

        return EmbeddedEngine(parsed.folder.expanduser(), documents=documents)
    return _open_server(parsed, settings or ServerSettings())


def _open_server(address: EngineAddress, settings: ServerSettings) -> Engine:
    extra = "qdrant" if address.vectors else "postgres"
    try:
        for package in ("psycopg", *(["qdrant_client"] if address.vectors else [])):
            import_module(package)
        from marklight.engines.server.postgres.engine import PostgresEngine
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("marklight"):
            raise
        raise StoreError(
            f"The engine {address} needs the package {error.name}, which is not installed",
            f'Install it with: pip install "marklight[{extra}]"',
        ) from None
    return PostgresEngine(address, settings)


def check_sqlite() -> str:
    """Write, reopen and read a database in WAL mode; return the version and the journal mode."""
    import sqlite3
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.db"
        for _ in range(2):
            connection = sqlite3.connect(path)
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                connection.execute("CREATE TABLE IF NOT EXISTS terms (term TEXT)")
                connection.execute("INSERT INTO terms VALUES ('light')")
                connection.commit()
                count = connection.execute("SELECT count(*) FROM terms").fetchone()[0]
            finally:
                connection.close()
    if count != 2:
        raise RuntimeError(f"wrote 2 rows and read {count}")
    return f"{sqlite3.sqlite_version}, journal {mode}"


def check_tantivy() -> str:
    """Index one term and search for it; return the version."""
    from importlib.metadata import version

    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("body").build()
    index = tantivy.Index(schema)
    writer = index.writer(15_000_000, 1)
    document = tantivy.Document()
    document.add_text("body", "light")
    writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    query = tantivy.Query.term_query(schema, "body", "light")
    count = len(index.searcher().search(query, 1).hits)
    if count != 1:
        raise RuntimeError(f"indexed 1 document and found {count}")
    return version("tantivy")


def check_numpy() -> str:
    """Multiply a matrix and a vector; return the version."""
    import numpy as np

    product = np.eye(3, dtype=np.float32) @ np.array([1, 2, 3], dtype=np.float32)
    if product.tolist() != [1.0, 2.0, 3.0]:
        raise RuntimeError(f"the product is {product.tolist()}")
    return np.__version__
