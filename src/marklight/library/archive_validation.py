"""Validate the records of an archive in one pass: their order, duplicates, and references between them.

Memory is bounded by 16 bytes for each passage, besides one member of the archive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from marklight.library.archive import MANIFEST
from marklight.library.archive_reader import Archive, invalid
from marklight.library.contents import path_first
from marklight.model import Vectors
from marklight.ports import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TERM = 1000
"""Characters of a vocabulary term."""
_DIGEST = re.compile(r"[0-9a-f]{32}")


def validate(archive: Archive, progress: Progress) -> None:
    """Read all records; raise StoreError unless they are those of an index."""
    digests = _check_documents(archive, progress)
    for model in archive.models():
        for group in _ascending(archive.vectors(model)):
            if not all(map(_DIGEST.fullmatch, group.digests)):
                raise invalid("a vector has an invalid key")
            if not _all_in(_hashes(group.digests), digests):
                raise invalid("a vector belongs to no passage")
        for group in _ascending(archive.term_vectors(model)):
            if any(len(term) > MAX_TERM for term in group.digests):
                raise invalid("a term is too long")
    archive.communities(())
    parts = ["documents", "communities"]
    parts += [f"{part}/{n}" for n in range(len(archive.models())) for part in ("vectors", "terms")]
    for name in archive.names:
        if name != MANIFEST and name.rpartition("/")[0] not in parts:
            raise invalid(f"{name} belongs to no model")


def _check_documents(archive: Archive, progress: Progress) -> NDArray[Any]:
    """Check documents and passages; return the sorted hashes of the digests of passages."""
    ids, digests = bytearray(), bytearray()
    last: tuple[str, str] = "", ""
    documents = passages = 0
    for entry in archive.entries():
        progress("Verifying documents", documents, archive.counts()[0])
        if path_first(entry) <= last:
            raise invalid(f"the document {entry.document.id.path} is repeated or out of order")
        last = path_first(entry)
        documents += 1
        passages += len(entry.chunks)
        ids += b"".join(_hash(chunk.id) for chunk in entry.chunks)
        digests += b"".join(_hash(chunk.digest) for chunk in entry.chunks)
    if (documents, passages) != archive.counts():
        raise invalid("it has other counts than its manifest")
    if len(_sorted(ids)) != passages:
        raise invalid("two passages have the same id")
    return _sorted(digests)


def _ascending(groups: Iterable[Vectors]) -> Iterator[Vectors]:
    """Yield groups of vectors; raise StoreError unless their keys ascend."""
    last = ""
    for group in groups:
        for key in group.digests:
            if key <= last:
                raise invalid("a vector is repeated or out of order")
            last = key
        yield group


def _hash(key: str) -> bytes:
    """Return 8 bytes of a key: a million of them take 8 MB."""
    return blake2b(key.encode(), digest_size=8).digest()


def _hashes(keys: Iterable[str]) -> NDArray[Any]:
    return np.frombuffer(b"".join(map(_hash, keys)), dtype="<u8")


def _sorted(hashes: bytearray) -> NDArray[Any]:
    return np.unique(np.frombuffer(hashes, dtype="<u8"))


def _all_in(keys: NDArray[Any], known: NDArray[Any]) -> bool:
    if not len(known):
        return False
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return bool((known[places] == keys).all())
