"""Which model answers: the one that the settings name, or the one before until that is ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from marklight.answer import Mode, Query
from marklight.errors import ModelError, UsageError
from marklight.library.embedding import name_key
from marklight.ports import Embedder, Snapshot

WITH_MODEL = (Mode.HYBRID, Mode.SEMANTIC)
"""Modes that need a model; the others answer without one."""
BY_COMMAND = "`marklight index` does the rest"
BY_ITSELF = "the rest follows by itself"


def model_for(
    query: Query,
    snapshot: Snapshot,
    wanted: Embedder | None,
    load: Callable[[str], Embedder],
    rest: str,
) -> tuple[Embedder | None, list[str]]:
    """The model to ask with, and what the asker should know about it; `rest` says who makes the vectors that lack."""
    if wanted is None:
        if query.mode is Mode.SEMANTIC:
            raise UsageError(
                "there is no semantic search while model.name is none",
                "Name a model, or ask with --mode keyword",
            )
        return None, []
    covered, total = snapshot.vectors.models(), snapshot.status.counts("").chunks
    have = covered.get(wanted.fingerprint, 0)
    if have >= total:
        return wanted, []
    done = f"{have} of {total} passages are embedded; {rest}"
    before = _better(snapshot, covered, have, load)
    if before is not None:
        return before, [f"{before.name} answers until {wanted.name} is ready: {done}"]
    return wanted, [f"semantic search is still partial: {done}"]


def embedded_with(snapshot: Snapshot, wanted: Callable[[], str]) -> str:
    """The fingerprint of the model whose vectors are compared with each other, empty where none is.

    Nothing is embedded for that, so the wanted model is looked for only where there is a choice.
    """
    known = snapshot.vectors.models()
    chosen = wanted() if len(known) > 1 else ""
    return chosen if chosen in known else max(known, key=lambda model: known[model], default="")


def _better(
    snapshot: Snapshot, covered: Mapping[str, int], have: int, load: Callable[[str], Embedder]
) -> Embedder | None:
    """A model that covers more than this, if it is still on this machine."""
    names = snapshot.status.manifest()
    for fingerprint, count in sorted(covered.items(), key=lambda each: -each[1]):
        if count <= have or name_key(fingerprint) not in names:
            continue
        try:
            found = load(names[name_key(fingerprint)])
        except ModelError:
            continue
        if found.fingerprint == fingerprint:
            return found
    return None
