"""Libraries of older formats: read as they are, and brought up to date by the next writer."""

from __future__ import annotations

from dataclasses import dataclass

from marklight.engines.embedded.schema import VERSION
from marklight.engines.embedded.session import Session
from marklight.errors import StoreError


@dataclass(frozen=True, slots=True)
class Older:
    """A format of the past that this version still knows."""

    change: str
    """Makes the tables of the next format of it; what is derived from others is filled after the last."""
    stand_in: str
    """Makes its tables look like the present ones, for one transaction that only reads."""


OLDER = {
    2: Older(
        change="""
ALTER TABLE state ADD COLUMN linked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE state ADD COLUMN vocabulary TEXT NOT NULL DEFAULT '';
ALTER TABLE state ADD COLUMN paired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN community INTEGER;
CREATE TABLE edges (
    source INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    target INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (source, target)
) WITHOUT ROWID;
CREATE INDEX edges_to ON edges (target, source);
CREATE TABLE callings (
    row INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, score REAL NOT NULL
);
CREATE INDEX callings_by_name ON callings (name, document, first, last, score);
CREATE INDEX callings_of ON callings (document);
CREATE TABLE concepts (term TEXT PRIMARY KEY, documents INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX concepts_by_frequency ON concepts (documents DESC, term);
CREATE TABLE concept_vectors (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    term TEXT NOT NULL, vector BLOB NOT NULL
);
CREATE UNIQUE INDEX concept_vectors_by_term ON concept_vectors (model, term);
UPDATE state SET generation = generation + 1, linked = generation + 1
""",
        # Titles and aliases are known, but for accents; file names, headings and words come later.
        stand_in="""
CREATE TEMP VIEW state AS SELECT *, generation AS linked, '' AS vocabulary, -1 AS paired
    FROM main.state;
CREATE TEMP VIEW documents AS SELECT *, NULL AS community FROM main.documents;
CREATE TEMP VIEW callings AS
    SELECT value AS name, document, 0 AS first, 1000000000 AS last, 1.0 AS score
    FROM main.facts WHERE key IN ('title', 'aliases');
CREATE TEMP VIEW concepts AS SELECT '' AS term, 0 AS documents WHERE false;
CREATE TEMP VIEW concept_vectors AS SELECT 0 AS row, 0 AS model, '' AS term, x'' AS vector WHERE false;
CREATE TEMP VIEW chunks AS SELECT *, '' AS levels FROM main.chunks
""",
    ),
    3: Older(
        # Of passages that are there, levels are found when they are asked for.
        change="""
ALTER TABLE chunks ADD COLUMN levels TEXT NOT NULL DEFAULT '';
DROP INDEX chunks_by_digest;
CREATE INDEX chunks_by_digest ON chunks (digest, id)
""",
        stand_in="CREATE TEMP VIEW chunks AS SELECT *, '' AS levels FROM main.chunks",
    ),
}
"""Each with the one step to its next, so that a format more is an entry more."""


def judge(session: Session) -> int:
    """The format of the tables, 0 for none; raises where this version cannot use them."""
    format: int = session.value("PRAGMA user_version")
    if format > VERSION:
        raise StoreError(
            f"{session.path} was made by a newer Marklight (format {format}, known: {VERSION})",
            "Upgrade with `pip install --upgrade marklight`",
        )
    if 0 < format < VERSION and format not in OLDER:
        raise StoreError(
            f"{session.path} was made by an older Marklight (format {format}, now {VERSION})",
            f"Your documents are untouched: move {session.path.parent} away and run"
            " `marklight index` again",
        )
    return format


def suit(session: Session) -> None:
    """Let a view ask for the present tables, whichever the library has; they end with its transaction."""
    if older := OLDER.get(judge(session)):
        _run(session, older.stand_in)


def upgrade(session: Session) -> None:
    """Bring the tables to the present format, all of it or nothing; the writer's place must be held."""
    if judge(session) == VERSION:
        return
    from marklight.engines.embedded import pairing, refill

    with session.transaction():
        for format in range(judge(session), VERSION):
            _run(session, OLDER[format].change)
        refill.callings(session)
        refill.concepts(session)
        pairing.renew(session)
        session.run(f"PRAGMA user_version = {VERSION}")


def _run(session: Session, statements: str) -> None:
    for statement in statements.split(";"):
        session.run(statement)
