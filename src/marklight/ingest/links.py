"""Links between documents: names of a document, and the names that a link target may mean."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from posixpath import normpath
from urllib.parse import unquote

from marklight.ingest.parse import Mention, Style, Title
from marklight.model import DocumentId, Link, LinkType, Name, NameStrength, bounded_key

EXTENSIONS = ("md", "markdown", "mdx", "txt")
_INDEX_PAGES = ("index", "_index", "readme")
ROOT = "."
"""The name of a collection's own folder, for links to its index page."""

MAX_COMPONENTS = 16
"""Longest path suffix, in components, that is a name: all suffixes of a path of n folders have n² characters. A link
with more components must name the whole path."""

_EXTENSION = re.compile(r"\.([a-z][a-z0-9]{0,9})$")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
IMAGE_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
    "webp": "image/webp",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
}
"""File types of pictures that a browser shows, and their media types."""
ATTACHMENT_TYPES = {
    "pdf": "application/pdf",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "flac": "audio/flac",
}
"""File types that a page links to, and their media types."""
_MEDIA = frozenset(
    "png jpg jpeg gif svg webp bmp ico avif tif tiff pdf mp3 mp4 m4a wav ogg flac mov mkv webm zip "
    "canvas base excalidraw".split()
)
"""File types that a wikilink may embed besides notes; `[[Node.js]]` is a note."""
_INCLUDE = re.compile(
    r"(?:\{%-?|\{\{[<%])\s*(?:include(?:_relative|_cached)?|render|readfile)\s+(?:file\s*=\s*)?[\"']?([^\s\"'{}%>]+)"
    r"|\{%-?\s*(?:data|indented_data_reference)\s+(reusables\.[\w.-]+)"
    r"|import\s[^'\"]*['\"]([^'\"]+\.mdx?)['\"]"
    r"|\s*-+8<-+\s+\"([^\"]+)\""
)
"""Template directives that insert another file: of Jekyll, Liquid, Jinja and Hugo, of GitHub's documentation (`{% data reusables.a.b %}`
inserts `reusables/a/b.md`), of MDX and of MkDocs."""
_TYPES = (
    (LinkType.RELATED, re.compile(r"(see also|related|further reading)\b")),
    (LinkType.IMPLEMENTS, re.compile(r"(implements|implementations?|implemented (by|in))\b")),
    (LinkType.TESTS, re.compile(r"(tests?|testing|tested (by|in))\b")),
)
"""The type of a link, by the heading above it."""


def names_for(path: str, aliases: Iterable[str] = ()) -> tuple[Name, ...]:
    """Return every name of a document: its path, its last 1 to 16 components, and its aliases."""
    parts = _fold(path).split("/")
    stem, dot, extension = parts[-1].rpartition(".")
    ends = [[*parts[:-1], stem]] if dot and stem and extension in EXTENSIONS else []
    if (stem if ends else parts[-1]) in _INDEX_PAGES:
        ends.append(parts[:-1] or [ROOT])
    names: dict[str, NameStrength] = {}
    for whole in (parts, *ends):
        names.setdefault(bounded_key("/".join(whole)), NameStrength.PATH)
    for whole in (parts, *ends):
        for end in _suffixes(whole[1:]):
            names.setdefault(end, NameStrength.SUFFIX)
    for alias in aliases:
        if key := _fold(alias).strip().strip("/"):
            names.setdefault(bounded_key(key), NameStrength.ALIAS)
    return tuple(Name(key, strength) for key, strength in names.items())


def keys_for(target: str, source: DocumentId, style: Style = Style.MARKDOWN) -> tuple[str, ...]:
    """Return the names that a link target may mean, best first; none if it is not a document of the library."""
    target = target.strip()
    if not target or _SCHEME.match(target) or target.startswith("//"):
        return ()
    if style is Style.MARKDOWN:
        target = unquote(target.partition("?")[0])
    folded = _fold(target.replace("\\", "/"))
    last = folded.rpartition("/")[2]
    extension = _EXTENSION.search(last)
    if (
        extension
        and extension[1] not in EXTENSIONS
        and (style is Style.MARKDOWN or extension[1] in _MEDIA)
    ):
        return ()
    written = [part for part in folded.split("/") if part not in ("", ".")]
    names = [part for part in written if part != ".."]
    if folded.startswith("/"):
        return _unique(["/".join(names), *_suffixes(names)] if names else [ROOT])
    relative = style is Style.MARKDOWN or folded.startswith(("./", "../"))
    keys = [] if relative else ["/".join(names)]
    page = _fold(source.path).split("/")
    if style is not Style.WIKI or relative:
        keys.append(_join(page[:-1], written))
        # On a website a page is a folder, and its links are relative to that folder.
        keys.append(_join([*page[:-1], page[-1].rpartition(".")[0] or page[-1]], written))
    if names and (len(names) > 1 or _stem(last) not in _INDEX_PAGES):
        keys.append("/".join(names))
    return _unique(keys)


def is_media(target: str) -> bool:
    """Return true if a wikilink names a picture or another media file, not a note."""
    return _has_type(target, _MEDIA)


def is_image(target: str) -> bool:
    """Return true if a target names a picture that a browser can show."""
    return _has_type(target, IMAGE_TYPES)


def is_attachment(target: str) -> bool:
    """Return true if a target names a PDF or an audio file."""
    return _has_type(target, ATTACHMENT_TYPES)


def _has_type(target: str, types: Container[str]) -> bool:
    extension = _EXTENSION.search(_fold(target))
    return extension is not None and extension[1] in types


def include_target(text: str, start: int = 0) -> str:
    """Return the file that the template directive at an offset inserts, as a link target; empty if it inserts none."""
    match = _INCLUDE.match(text, start)
    if match is None:
        return ""
    return (match[2] or "").replace(".", "/") or next(filter(None, match.groups()))


def links_for(
    mentions: Iterable[Mention], titles: Sequence[Title], source: DocumentId
) -> tuple[Link, ...]:
    """Return the mentions that are links, in the order of the text."""
    types = _types(titles)
    links: list[Link] = []
    keys_by_target: dict[tuple[Style, str], tuple[str, ...]] = {}
    for mention in mentions:
        if mention.style is Style.MARKDOWN:
            target, _, fragment = mention.target.partition("#")
            fragment = unquote(fragment)
        else:
            target, fragment = wiki_parts(mention.target)
        spelled = (mention.style, target)
        if spelled not in keys_by_target:
            keys_by_target[spelled] = keys_for(target, source, mention.style)
        if not (keys := keys_by_target[spelled]):
            continue
        if mention.style is Style.RELATED:
            kind = LinkType.RELATED
        else:
            kind = LinkType.EMBEDS if mention.embeds else types[mention.heading]
        links.append(Link(kind, target, fragment, mention.text, mention.line + 1, keys))
    return tuple(links)


def wiki_parts(target: str) -> tuple[str, str]:
    """Split `Target#Heading`, `Target#^block` and `Target^block` into target and fragment."""
    name, hash_sign, fragment = target.partition("#")
    if not hash_sign:
        name, caret, block = target.partition("^")
        fragment = f"^{block.strip()}" if caret else ""
    # In `#Heading#Part` the last part is the place.
    return name.strip(), fragment.rpartition("#")[2].strip()


def _types(titles: Sequence[Title]) -> Mapping[int, LinkType]:
    """Return the link type for each heading; a heading without one inherits that of the heading above it."""
    types = {-1: LinkType.LINKS_TO}
    above: list[tuple[int, LinkType]] = []
    for index, title in enumerate(titles):
        while above and above[-1][0] >= title.level:
            above.pop()
        lower = title.text.lower()
        outer = above[-1][1] if above else LinkType.LINKS_TO
        types[index] = next((kind for kind, pattern in _TYPES if pattern.match(lower)), outer)
        above.append((title.level, types[index]))
    return types


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).lower()


def _stem(name: str) -> str:
    stem, dot, extension = name.rpartition(".")
    return stem if dot and extension in EXTENSIONS else name


def _join(folder: Sequence[str], written: Sequence[str]) -> str:
    """Return the path from a folder; empty where it leads out of the collection."""
    path = normpath("/".join((*folder, *written)))
    return "" if path.split("/", 1)[0] == ".." else path


def _suffixes(parts: Sequence[str]) -> list[str]:
    """Return the suffixes of a path, the longest first; their number is bounded."""
    last = parts[-MAX_COMPONENTS:]
    return [bounded_key("/".join(last[start:])) for start in range(len(last))]


def _unique(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(bounded_key(key) for key in keys if key))
