"""Documents by the addresses that assistants know them by, and back."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, unquote

from marklight.errors import NotFound
from marklight.model import DocumentId

ROOT = "marklight://docs/"
TEMPLATE = f"{ROOT}{{path}}"
MOST_SIGNS = 20_000
"""A path has at most 4,096 bytes, and each is three signs when it is written out."""


def address(id: DocumentId, several_collections: bool) -> str:
    """Where there are several collections, a document's own is the first folder."""
    return ROOT + quote(id.named(several_collections), safe="/", errors="replace")


def other_address(id: DocumentId, several_collections: bool) -> str:
    """The same as a client writes it that fills the template by its rules: slashes are signs too."""
    return ROOT + quote(id.named(several_collections), safe="", errors="replace")


def read_address(address: str, collections: Collection[str]) -> tuple[DocumentId, str]:
    """The document, and the heading that a fragment names; it need not be there."""
    if not address.startswith(ROOT) or len(address) > MOST_SIGNS:
        raise NotFound(f"{address[:100]!r} is no document", f"Addresses are {TEMPLATE}")
    path, _, fragment = address.removeprefix(ROOT).partition("#")
    path, fragment = unquote(path), unquote(fragment)
    if len(collections) == 1:
        return DocumentId(next(iter(collections)), path), fragment
    for name in sorted(collections, key=len, reverse=True):
        if path.startswith(f"{name}/"):
            return DocumentId(name, path.removeprefix(f"{name}/")), fragment
    raise NotFound(
        f"{path[:100]!r} is in no collection", f"It begins with one of: {', '.join(collections)}"
    )
