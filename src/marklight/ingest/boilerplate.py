"""Boilerplate: blocks of text that many documents of a collection share, by digests of normalised blocks.

A block is a paragraph, list item, table row, fenced code block or heading. Digests ignore case, white space, check marks and
the targets of links. A block is boilerplate if at least `boilerplate` documents of its collection have it, copies of
a document counted once. The number is absolute and the decision depends on the stored documents alone: a changed file costs
the same in a library of any size, and an index that was updated equals one that was built at once.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from marklight.ingest.parse import ParsedText, Title
from marklight.model import Document, DocumentId, without_spans
from marklight.ports import Snapshot
from marklight.text.markdown import without_comments

_WORD = re.compile(r"\w")
_OWN_BLOCK = re.compile(r"[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|\||#{1,6}(?:[ \t]|$))")
"""A line that begins a block of its own: list item, table row or heading."""
_BEGINS_OWN_BLOCK = frozenset("-*+|#0123456789")
_LINK_TARGET = re.compile(r"\]\([^()\n]{0,2000}\)")
_TAG = re.compile(r"<[^<>\n]{1,2000}>")
_TITLE_LINE = re.compile(r"^(?:#|[Tt]itle:)[ \t]+(.*)$", re.MULTILINE)
_TITLE_WITHIN = 2000
"""Characters at the beginning of a file in which a forecast finds its title."""
_SHIFT = 32
"""Bits of a digest between the two parts by which it is counted."""
MAX_SHOWN_CHARS = 200
"""Characters of a block that `status` shows."""
_FENCES = ("```", "~~~")


class TextBlock(NamedTuple):
    """A block of a document: its offsets in the text, its digest (0 if it has no words), and true for a heading."""

    start: int
    end: int
    digest: int
    is_heading: bool = False


def text_blocks(text: str, first: int, collection: str) -> list[TextBlock]:
    """Return the blocks of a text from an offset on; each but the first begins where the one before it ends.

    Found without the Markdown parser, so that files can be read ahead in a tenth of the time.
    """
    hasher = blake2b(f"{collection}\0".encode("utf-8", "surrogatepass"), digest_size=8)
    starts: list[int] = []
    offset, fence, is_open = first, "", False
    for line in text[first:].split("\n"):
        bare = line.strip()
        if fence:
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence, is_open = "", False
        elif not bare:
            is_open = False
        elif bare[0] in "`~" and bare.startswith(_FENCES):
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
            starts.append(offset)
        elif not is_open or (bare[0] in _BEGINS_OWN_BLOCK and _OWN_BLOCK.match(line)):
            starts.append(offset)
            is_open = bare[0] != "#"
        offset += len(line) + 1
    starts.append(len(text))
    made: list[TextBlock] = []
    for start, end in pairwise(starts):
        words = normalized(text[start:end])
        digest = 0
        if words:
            block_hasher = hasher.copy()
            block_hasher.update(words.encode("utf-8", "surrogatepass"))
            digest = int.from_bytes(block_hasher.digest(), "little", signed=True)
        made.append(TextBlock(start, end, digest, words[:1] == "#"))
    return made


def normalized(block: str) -> str:
    """Return a block in lower case, without link targets, tags, check marks and superfluous white space; empty without words."""
    text = block.lower()
    if "](" in text:
        text = _LINK_TARGET.sub("]", text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    text = " ".join(text.replace("[x]", "[ ]").split())
    return text if _WORD.search(text) else ""


def boilerplate_spans(
    blocks: Sequence[TextBlock], shared: Collection[int]
) -> list[tuple[int, int]]:
    """Return the parts of the text that are boilerplate, in order.

    A shared heading is one only if it has no other text: above text of its own it is the name of a section.
    """
    spans: list[tuple[int, int]] = []
    own_text = False
    for block in reversed(blocks):
        if block.digest in shared:
            if not (block.is_heading and own_text):
                spans.append((block.start, block.end))
        elif block.digest and not block.is_heading:
            own_text = True
        if block.is_heading:
            own_text = False
    return spans[::-1]


def find_shared(
    snapshot: Snapshot,
    documents: Iterable[tuple[Document, Collection[int]]],
    removed: Iterable[DocumentId],
    minimum: int,
    forecast: Forecast | None,
) -> tuple[frozenset[int], frozenset[int], list[DocumentId]]:
    """Return the boilerplate of documents that a commit inserts, what ceases to be, and other documents in which any changes.

    `documents` are those with the digests of their blocks.
    Reads a bounded number of rows for each block, however many documents have it. A forecast of what the rest of a run
    inserts counts as well; at the end of the run, without documents, the blocks that it was used for are counted.
    """
    inserted: dict[int, set[int]] = defaultdict(set)
    replaced = set(removed)
    for document, digests in documents:
        replaced.add(document.id)
        origin = document.origin
        for digest in digests:
            inserted[digest].add(origin)
    before = snapshot.blocks.digests_of(replaced)
    ended = forecast is not None and not inserted
    if forecast and ended:
        before |= forecast.used
    touched: Collection[int] = inserted.keys() | before
    if forecast:
        touched = forecast.possible(touched)
    stored = snapshot.blocks.stored(touched, minimum)
    possible = [
        key
        for key, block in stored.items()
        if block.boilerplate or block.documents + len(inserted.get(key, ())) >= minimum
    ]
    others = snapshot.blocks.origins(possible, minimum, replaced)
    shared = {key for key, origins in inserted.items() if len(origins) >= minimum}
    for key in possible:
        if len(inserted.get(key, set()).union(others.get(key, ()))) >= minimum:
            shared.add(key)
    if forecast and not ended:
        shared |= forecast.of(key for key in touched if key not in shared)
    changed = {key for key, block in stored.items() if block.boilerplate != (key in shared)}
    outdated = [id for id in snapshot.blocks.documents_with(changed) if id not in replaced]
    return frozenset(shared), frozenset(changed - shared), outdated


def block_text(text: str, collection: str, digest: int) -> str:
    """Return the text of a block in a document, on one line; empty if the document does not have it."""
    masked, _ = without_comments(text, body_offset(text))
    for block in text_blocks(masked, body_offset(text), collection):
        if block.digest == digest:
            return " ".join(masked[block.start : block.end].split())[:MAX_SHOWN_CHARS]
    return ""


class Estimate(NamedTuple):
    """Blocks that are probably boilerplate, by two parts of their digests."""

    slots: frozenset[int]
    others: frozenset[int]
    mask: int

    def of(self, digests: Iterable[int]) -> set[int]:
        """Return those blocks that are probably boilerplate."""
        slots, others, mask = self
        return {key for key in digests if key & mask in slots and key >> _SHIFT & mask in others}


class Forecast:
    """Estimates which blocks the files of a run share, before any of them is chunked.

    Without it nearly every document of a new library is chunked twice: when a block has become boilerplate, all documents
    with it are chunked again. The counts are those of a count-min sketch (Cormode and Muthukrishnan 2005) with two rows, so
    the estimate may be too high, and what it was used for is checked at the end of the run. Memory is 1.5 times the size of
    the files, 48 MB at most.
    """

    def __init__(self, minimum: int, total_bytes: int, of_all: bool) -> None:
        size = 1 << min(23, max(16, (total_bytes // 8).bit_length()))
        self._minimum = min(minimum, 255)
        self._mask = size - 1
        self._rows = [(bytearray(size), array("H", bytes(2 * size))) for _ in range(2)]
        """For each row, the count of each slot and the last file that was counted there."""
        self._of_all = of_all
        """True for a new library: blocks that are rare in these files are rare in all."""
        self.used: set[int] = set()
        """Blocks that were taken for boilerplate by the estimate."""

    def add(self, id: DocumentId, text: str) -> None:
        """Count the blocks of a file; successive files with the same name and title count once."""
        title = _TITLE_LINE.search(text, 0, _TITLE_WITHIN)
        key = f"{title[1] if title else ''}\0{id.path.rpartition('/')[2]}"
        origin = crc32(key.encode("utf-8", "surrogatepass")) & 0xFFFF
        first, mask = body_offset(text), self._mask
        blocks = text_blocks(without_comments(text, first)[0], first, id.collection)
        for shift, (counts, last) in zip((0, _SHIFT), self._rows, strict=True):
            for block in blocks:
                slot = block.digest >> shift & mask
                if block.digest and last[slot] != origin and counts[slot] < 255:
                    last[slot] = origin
                    counts[slot] += 1

    def possible(self, digests: Collection[int]) -> Collection[int]:
        """Return the blocks without those that are rare, where that is certain; none needs to be looked up then."""
        if not self._of_all:
            return digests
        counts, mask, least = self._rows[0][0], self._mask, self._minimum // 2
        return {key for key in digests if counts[key & mask] >= least}

    def of(self, digests: Iterable[int]) -> set[int]:
        """Return those blocks that are probably boilerplate at the end of the run."""
        likely = self.estimate.of(digests)
        self.used |= likely
        return likely

    @cached_property
    def estimate(self) -> Estimate:
        """Return what is probably boilerplate, once all files are counted."""
        frequent = re.compile(b"[%b-\xff]" % re.escape(bytes([self._minimum])), re.DOTALL)
        slots, others = (
            frozenset(match.start() for match in frequent.finditer(counts))
            for counts, _ in self._rows
        )
        self._rows = [(counts, array("H")) for counts, _ in self._rows]  # frees most of the memory
        return Estimate(slots, others, self._mask)


def body_offset(text: str) -> int:
    """Return the offset after the frontmatter."""
    end = text.find("\n---", 3) if text.startswith("---") else -1
    return max(0, text.find("\n", end + 4)) if end >= 0 else 0


class PassageTexts:
    """Cuts the texts of passages out of a document: without comments and padding, with the offsets of boilerplate."""

    def __init__(self, parsed: ParsedText, shared: Collection[int]) -> None:
        self.parsed = parsed
        self._omitted = _merged([*parsed.comments, *parsed.padding])
        self._spans = boilerplate_spans(parsed.text_blocks, shared) if shared else []
        self._starts = {start for start, _ in self._spans}
        blocks = parsed.text_blocks if self._spans else ()
        self._shared_headings = {block.start for block in blocks if block.digest in shared}

    def own_headings(self, titles: Iterable[Title]) -> tuple[str, ...]:
        """Return the texts of headings without those that are boilerplate."""
        starts = self.parsed.starts
        return tuple(title.text for title in titles if starts[title.line] not in self._starts)

    def of(self, start: int, end: int) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Return the text of a span of the document, and the parts of it that are boilerplate."""
        cuts = list(_clipped(self._omitted, start, end))
        text = self.parsed.text[start:end]
        kept = without_spans(text, [(one - start, other - start) for one, other in cuts])
        parts: list[tuple[int, int]] = []
        for one, other in _clipped(self._spans, start, end):
            first, last = (place - start - _removed(cuts, place) for place in (one, other))
            if parts and parts[-1][1] == first:
                first = parts.pop()[0]
            if first < last:
                parts.append((first, last))
        return kept, tuple(parts)

    def is_shared(self, own_text: str, heading: int | None) -> bool:
        """Return true if a passage has no words of its own, and its heading, given by its offset, is shared too."""
        if _WORD.search(own_text):
            return False
        return heading is None or heading in self._shared_headings


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((start, end))
    return merged


def _clipped(spans: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of ordered spans inside a range."""
    index = bisect_right(spans, start, key=lambda span: span[1])
    while index < len(spans) and spans[index][0] < end:
        yield max(start, spans[index][0]), min(end, spans[index][1])
        index += 1


def _removed(cuts: Sequence[tuple[int, int]], place: int) -> int:
    """Return the number of characters that are cut out before an offset."""
    return sum(min(end, place) - start for start, end in cuts if start < place)
