"""Write an index into an archive: one ZIP file of JSON lines and float32 vectors, with a manifest of SHA-256 digests.

Members, in this order; the reader accepts no others:

- `documents/000000.jsonl`, …: one document a line, as `archive_records` encodes it, ordered by path, then collection
- `communities/000000.jsonl`, …: `[collection, path, number]`, in the same order
- `vectors/MODEL/000000.json`, `….f32`: digests of texts, and their vectors as little-endian float32 rows
- `terms/MODEL/000000.json`, `….f32`: vocabulary terms and their vectors
- `manifest.json`: format, version, counts, models, and the name, size and SHA-256 of every other member

MODEL is the position of the model in the manifest. The same index gives the same members. An archive contains no state of
files but size and time, no failures, no settings, no absolute path and no address.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.batch import Vectors
from marklight.errors import StoreError, UsageError
from marklight.library.transfer.archive_records import encode_entry, encode_json
from marklight.library.transfer.contents import Source, batches, text_length
from marklight.ports import Progress, no_progress
from marklight.private_files import create_private

if TYPE_CHECKING:
    from zipfile import ZipFile

FORMAT = "marklight index"
VERSION = 1
"""Version of the format; a newer one is not read."""
MANIFEST = "manifest.json"
MAX_LINE = 64_000_000
"""Bytes of a document in an archive: a text of the largest size that is indexed by default, three times over."""
MAX_PAGE = 2 * MAX_LINE
"""Bytes of a member."""
PAGE_BYTES = 4_000_000
"""Bytes of lines after which the next member begins."""
VOCABULARY_KEY = "words "
"""Prefix of the manifest keys that record whether terms have no vector yet; the model follows."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first date of the format: the time of writing would make equal archives differ."""


class WrittenArchive(NamedTuple):
    """Contents of an archive."""

    documents: int
    passages: int
    vectors: int
    models: tuple[str, ...]
    digest: str
    """SHA-256 of the manifest."""


def write_archive(source: Source, path: Path, progress: Progress = no_progress) -> WrittenArchive:
    """Write an archive, whole or not at all; it is read back and verified before it gets its name."""
    from marklight.library.transfer.archive_reader import Archive, is_archive

    folder = Path(os.path.realpath(path.parent))
    path = folder / path.name
    if path.exists() and not is_archive(path):
        raise UsageError(
            f"{path} exists and is not an archive of Marklight", "Choose another file name"
        )
    draft = folder / f".{path.name}.{secrets.token_hex(4)}.new"
    try:
        with open(create_private(draft), "w+b") as file:
            vectors = _write(source, file, progress)
            file.flush()
            os.fsync(file.fileno())
        with Archive(draft) as archive:
            archive.verify(progress)
            written = WrittenArchive(
                *archive.counts(), vectors, tuple(archive.models()), archive.digest
            )
        os.replace(draft, path)
        _sync_folder(folder)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}",
            "Choose another folder, or make space on the disk",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return written


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where folders can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write(source: Source, file: Any, progress: Progress) -> int:
    """Write all members; return the number of vectors of passages."""
    from zipfile import ZipFile

    with ZipFile(file, "w", allowZip64=True) as archive:
        members = _Members(archive)
        documents = passages = vectors = 0
        communities: list[bytes] = []

        def lines() -> Iterator[bytes]:
            nonlocal documents, passages
            for group in batches(source.entries(), text_length):
                progress("Exporting documents", documents, source.counts()[0])
                known = source.communities([entry.document.id for entry in group])
                for entry in group:
                    id = entry.document.id
                    documents += 1
                    passages += len(entry.chunks)
                    if id in known:
                        communities.append(encode_json((*id, known[id])))
                    yield _bounded(encode_entry(entry), id.path)

        members.add_lines("documents", lines())
        members.add_lines("communities", communities)
        models = dict(sorted(source.models().items()))
        for number, model in enumerate(models):
            progress("Exporting vectors", number, len(models))
            vectors += members.add_vectors(f"vectors/{number}", source.vectors(model))
            members.add_vectors(f"terms/{number}", source.term_vectors(model))
        stored = source.manifest()
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "documents": documents,
            "passages": passages,
            "models": list(models.items()),
            "current_communities": source.has_current_communities(),
            "manifest": {
                key: stored[key]
                for key in (f"{VOCABULARY_KEY}{model}" for model in models)
                if key in stored
            },
            "members": members.written,
        }
        members.add(MANIFEST, encode_json(manifest))
    return vectors


def _bounded(line: bytes, path: str) -> bytes:
    if len(line) >= MAX_LINE:
        raise StoreError(
            f"{path} is too large for an archive: {len(line):,} bytes with its passages, the limit is {MAX_LINE:,}",
            "Set index.max_bytes to a lower value and index again, or copy the index with `marklight copy`",
        )
    return line


class _Members:
    """Members of a ZIP file that is written; text is compressed, vectors would not become smaller."""

    def __init__(self, archive: ZipFile) -> None:
        self._archive = archive
        self.written: list[tuple[str, int, str]] = []

    def add(self, name: str, data: bytes) -> None:
        """Add a member."""
        from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipInfo

        info = ZipInfo(name, _EPOCH)
        info.create_system, info.external_attr = 3, 0o600 << 16
        info.compress_type = ZIP_STORED if name.endswith(".f32") else ZIP_DEFLATED
        self._archive.writestr(info, data)
        self.written.append((name, len(data), sha256(data).hexdigest()))

    def add_lines(self, part: str, lines: Iterable[bytes]) -> None:
        """Add lines as members of bounded size."""
        for number, page in enumerate(_pages(lines)):
            self.add(f"{part}/{number:06}.jsonl", b"\n".join(page))

    def add_vectors(self, part: str, groups: Iterable[Vectors]) -> int:
        """Add vectors as pairs of members, keys and rows; return how many."""
        count = 0
        for number, group in enumerate(groups):
            rows = group.matrix.astype("<f4", copy=False)
            self.add(f"{part}/{number:06}.json", encode_json(group.digests))
            self.add(f"{part}/{number:06}.f32", rows.tobytes())
            count += len(group.digests)
        return count


def _pages(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    size = 0
    for line in lines:
        if page and size + len(line) > PAGE_BYTES:
            yield page
            page, size = [], 0
        page.append(line)
        size += len(line)
    if page:
        yield page
