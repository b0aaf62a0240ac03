"""Archives of an index: one ZIP file of JSON lines and float32 vectors, with a manifest of SHA-256 digests.

Members, in this order; the reader accepts no others:

- `documents/000000.jsonl`, …: one document a line, as `archive_records` encodes it, ordered by path, then collection
- `vectors/MODEL/000000.json`, `….f32`: digests of texts, and their vectors as little-endian float32 rows
- `terms/MODEL/000000.json`, `….f32`: vocabulary terms and their vectors
- `manifest.json`: format, version, counts, models, and the name, size and SHA-256 of every other member

MODEL is the position of the model in the manifest. The same index gives the same members. An archive contains no state of
files but size and time, no failures, no settings, no absolute path and no address.

An archive may come from a stranger: every byte is verified before anything is imported. The members are read from one local
header of the ZIP file to the next. Its central directory is not used, so there are no overlapping, repeated or hidden
members. Sizes are bounded before anything is decompressed, and nothing is ever written to a path from the archive.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

import numpy as np
from msgspec import Struct

from marklight.errors import StoreError, UsageError
from marklight.formatting import CONTROLS, one_line
from marklight.library.transfer.archive_records import (
    Manifest,
    decode_entry,
    decode_json,
    decode_matrix,
    encode_entry,
    encode_json,
    invalid,
    max_record,
)
from marklight.library.transfer.copying import Source, path_first
from marklight.model import Document, Entry, Vectors
from marklight.platforms import NONBLOCK, replace_file
from marklight.ports import Progress, no_progress
from marklight.private_files import create_private

if TYPE_CHECKING:
    from zipfile import ZipFile

    from numpy.typing import NDArray

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
MAX_MEMBERS = 20_000
"""Members of an archive: 80 GB of documents, or 40 million vectors."""
MAX_TERM = 1000
"""Characters of a vocabulary term."""
MAX_RATIO, FREE_BYTES = 100, 50_000_000
"""An archive unpacks to at most this many times its size, beyond the first bytes; text is compressed 5 to 10 times."""

_DIGEST = re.compile(r"[0-9a-f]{16}")
_HEADER = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8
_MAX_MEMBER_NAME = 64
_MEMBER = re.compile(
    r"documents/\d{6}\.jsonl|(vectors|terms)/\d{1,4}/\d{6}\.(json|f32)|manifest\.json"
)
_MAX_JSON = 32_000_000
"""Bytes of the manifest and of lists of keys: Python needs up to 20 times as much memory for them."""


def write_archive(source: Source, path: Path, progress: Progress) -> tuple[Archive, int]:
    """Write an archive, whole or not at all; it is read back and verified before it gets its name.

    Return it, closed, and the number of vectors of passages.
    """
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
        replace_file(draft, path)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}",
            "Choose another folder, or make space on the disk",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return archive, vectors


def _write(source: Source, file: Any, progress: Progress) -> int:
    """Write all members; return the number of vectors of passages."""
    from zipfile import ZipFile

    with ZipFile(file, "w", allowZip64=True) as archive:
        members = _Members(archive)
        documents = passages = vectors = 0

        def lines() -> Iterator[bytes]:
            nonlocal documents, passages
            for entry in source.contents.entries():
                progress("Exporting documents", documents, source.documents)
                documents += 1
                passages += len(entry.chunks)
                yield _importable(encode_entry(entry), entry.document)

        for number, page in enumerate(_pages(lines())):
            members.add(f"documents/{number:06}.jsonl", b"\n".join(page))
        models = dict(sorted(source.contents.models().items()))
        for number, model in enumerate(models):
            progress("Exporting vectors", number, len(models))
            vectors += members.add_vectors(f"vectors/{number}", source.contents.vectors(model))
            members.add_vectors(f"terms/{number}", source.contents.term_vectors(model))
        keys = {f"{VOCABULARY_KEY}{model}" for model in models}
        stored: Any = {key: value for key, value in source.manifest.items() if key in keys}
        manifest = Manifest(
            FORMAT,
            VERSION,
            documents,
            passages,
            tuple(models.items()),
            stored,
            tuple(members.written),
        )
        members.add(MANIFEST, encode_json(manifest))
    return vectors


def _importable(line: bytes, document: Document) -> bytes:
    """Return the line of a document; raise StoreError if no import would accept it."""
    path, limit = document.id.path, min(MAX_LINE, max_record(document.file.size))
    if CONTROLS.search(path):
        raise StoreError(
            f"An archive cannot contain {one_line(path)}: its path has control characters",
            "Rename the file and index again, or copy the index with `marklight copy`",
        )
    if len(line) >= limit:
        raise StoreError(
            f"{path} is too large for an archive: {len(line):,} bytes with its passages, the limit is {limit:,}",
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


class _Member(NamedTuple):
    """A member of the file: where its data begins, and how it is compressed."""

    name: str
    start: int
    compressed: int
    size: int
    method: int


def is_archive(path: Path) -> bool:
    """Return True if a file begins like an archive of Marklight."""
    try:
        with open(path, "rb") as file:
            return _next_member(file, 0) is not None
    except (OSError, StoreError):
        return False


class Archive:
    """An archive that is open for reading; a source of a copy once it is verified."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Without NONBLOCK, opening a FIFO would wait for a writer.
            self._file = open(  # noqa: SIM115 - closed with the archive
                path, "rb", opener=lambda name, flags: os.open(name, flags | NONBLOCK)
            )
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", "Check the path") from None
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise UsageError(f"{path} is not a regular file", "Give the path of an archive")
        self._size = status.st_size
        self.members: dict[str, _Member] = {}
        self._digests: dict[str, str] = {}
        self.manifest = Manifest("", 0, 0, 0, (), {}, ())
        self.digest = ""
        """SHA-256 of the manifest, which contains the digests of all other members."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    # Verification

    def verify(self, progress: Progress = no_progress) -> None:
        """Read the whole archive: digests, then every record; raise StoreError if anything is wrong."""
        self._read_manifest(progress)
        _validate(self, progress)

    def _read_manifest(self, progress: Progress) -> None:
        """Find all members, compute their digests, and compare them with the manifest."""
        members: list[tuple[str, int, str]] = []
        data, unpacked, position = b"", 0, 0
        while member := _next_member(self._file, position):
            progress("Verifying archive", position, self._size)
            if MANIFEST in self.members or member.name in self.members:
                raise invalid("it has a member after its manifest, or the same member twice")
            unpacked += member.size
            if len(members) >= MAX_MEMBERS or unpacked > FREE_BYTES + MAX_RATIO * self._size:
                raise invalid("it has too many members, or too much data for the size of the file")
            self.members[member.name] = member
            data = self._unpack(member)
            members.append((member.name, member.size, sha256(data).hexdigest()))
            position = member.start + member.compressed
        if MANIFEST not in self.members:
            raise invalid("it is incomplete, or not an archive of Marklight")
        self.digest = members.pop()[2]
        self.manifest = _decode_manifest(data)
        if list(self.manifest.members) != members:
            raise invalid("its members do not match their digests")
        self._digests = {name: digest for name, _, digest in members}

    def _unpack(self, member: _Member) -> bytes:
        """Return the data of a member, of exactly the size in its header."""
        self._file.seek(member.start)
        data = self._file.read(member.compressed)
        if member.method == _DEFLATED:
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                data = unpacker.decompress(data, member.size + 1)
            except zlib.error as error:
                raise invalid(f"{member.name} cannot be decompressed") from error
        if len(data) != member.size:
            raise invalid(f"{member.name} is incomplete")
        return data

    def _data(self, name: str) -> bytes:
        """Return the data of a member, verified again, as the file may have changed."""
        data = self._unpack(self.members[name])
        if sha256(data).hexdigest() != self._digests[name]:
            raise invalid(f"{name} changed while it was read")
        return data

    def _lines(self) -> Iterator[bytes]:
        for name in self._names("documents", "jsonl"):
            data, start = self._data(name), 0
            while start <= len(data):
                end = data.find(b"\n", start)
                end = len(data) if end < 0 else end
                if end - start >= MAX_LINE:
                    raise invalid(f"{name} has a line that is too long")
                yield data[start:end]
                start = end + 1

    def _names(self, part: str, suffix: str) -> list[str]:
        """Return the members of a part; they must be numbered from 0 without gaps."""
        names = [
            name for name in self.members if name.startswith(f"{part}/") and name.endswith(suffix)
        ]
        if names != [f"{part}/{number:06}.{suffix}" for number in range(len(names))]:
            raise invalid(f"members of {part} are missing or out of order")
        return names

    # Source of a copy

    @property
    def source(self) -> Source:
        """Return the archive as the source of a copy, once it is verified."""
        facts = self.manifest
        return Source(
            self, facts.documents, facts.passages, dict(facts.manifest), has_file_states=False
        )

    def entries(self) -> Iterator[Entry]:
        return map(decode_entry, self._lines())

    def models(self) -> Mapping[str, int]:
        return dict(self.manifest.models)

    def vectors(self, model: str) -> Iterator[Vectors]:
        return self._vectors("vectors", model)

    def term_vectors(self, model: str) -> Iterator[Vectors]:
        return self._vectors("terms", model)

    def _vectors(self, part: str, model: str) -> Iterator[Vectors]:
        place = f"{part}/{list(self.models()).index(model)}"
        names = self._names(place, "json")
        if len(names) != len(self._names(place, "f32")):
            raise invalid(f"members of {place} are missing")
        for name in names:
            keys = decode_json(self._data(name), tuple[str, ...], name)
            rows = self._data(f"{name.removesuffix('json')}f32")
            yield Vectors(model, keys, decode_matrix(rows, len(keys), self.models()[model], name))


def _next_member(file: BinaryIO, position: int) -> _Member | None:
    """Read the local header at a position; None at the central directory, which ends the members."""
    file.seek(position)
    header = file.read(_HEADER.size)
    if header[:4] == b"PK\x01\x02" and position:
        return None
    if len(header) < _HEADER.size or header[:4] != b"PK\x03\x04":
        raise invalid("it is incomplete, or not an archive of Marklight")
    _, _, flags, method, _, _, _, compressed, size, length, extra = _HEADER.unpack(header)
    name = file.read(min(length, _MAX_MEMBER_NAME)).decode("ascii", "replace")
    if flags or extra or method not in (_STORED, _DEFLATED) or not _MEMBER.fullmatch(name):
        raise invalid("it is not an archive of Marklight")
    max_size = _MAX_JSON if name.endswith(".json") else MAX_PAGE
    # Data that cannot be compressed grows by less than a percent.
    if size > max_size or compressed > size + size // 100 + 64:
        raise invalid(f"{name} is too large")
    return _Member(name, position + _HEADER.size + length, compressed, size, method)


class _Version(Struct):
    format: str
    version: int


def _decode_manifest(data: bytes) -> Manifest:
    """Decode and check the manifest; raise StoreError if its format is another one."""
    header = decode_json(data, _Version, "its manifest")
    version = header.version if header.format == FORMAT else 0
    if version > VERSION:
        raise StoreError(
            f"The archive was written by a newer version of Marklight (format {version};"
            f" this version supports {VERSION})",
            "Upgrade with `pip install --upgrade marklight`",
        )
    if version != VERSION:
        raise invalid("it is not an archive of Marklight")
    manifest = decode_json(data, Manifest, "its manifest")
    models = dict(manifest.models)
    if (
        len(models) != len(manifest.models)
        or not all(map(str.isprintable, models))
        or not manifest.manifest.keys() <= {f"{VOCABULARY_KEY}{model}" for model in models}
    ):
        raise invalid("its manifest has invalid values")
    return manifest


def _validate(archive: Archive, progress: Progress) -> None:
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
    parts = ["documents"]
    parts += [f"{part}/{n}" for n in range(len(archive.models())) for part in ("vectors", "terms")]
    for name in archive.members:
        if name != MANIFEST and name.rpartition("/")[0] not in parts:
            raise invalid(f"{name} belongs to no model")


def _check_documents(archive: Archive, progress: Progress) -> NDArray[Any]:
    """Check documents and passages; return the sorted hashes of the digests of passages."""
    ids, digests = bytearray(), bytearray()
    last: tuple[str, str] = "", ""
    documents = passages = 0
    for entry in archive.entries():
        progress("Verifying documents", documents, archive.manifest.documents)
        if path_first(entry) <= last:
            raise invalid(f"the document {entry.document.id.path} is repeated or out of order")
        last = path_first(entry)
        documents += 1
        passages += len(entry.chunks)
        ids += b"".join(_hash(chunk.id) for chunk in entry.chunks)
        digests += b"".join(_hash(chunk.digest) for chunk in entry.chunks)
    if (documents, passages) != (archive.manifest.documents, archive.manifest.passages):
        raise invalid("its number of documents or passages differs from its manifest")
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
