"""MCP resources: documents listed a page at a time and read by their URI."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from marklight.errors import MarklightError, NotFound, UsageError
from marklight.formatting import URI_ROOT, document_uri, one_line, visible
from marklight.model import DocumentId
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.rendering import error_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

URI_TEMPLATE = f"{URI_ROOT}{{path}}"
MAX_URI_LENGTH = 20_000
"""A path has at most 4,096 bytes, each at most three characters when percent-encoded."""
MARKDOWN = "text/markdown"
PAGE_SIZE = 100
RESOURCE_NOT_FOUND = -32002
"""Error code up to protocol version 2025-11-25; later versions use INVALID_PARAMS."""


def fully_encoded_uri(id: DocumentId, several_collections: bool) -> str:
    """Return the URI as clients write it that expand the template by RFC 6570: with encoded slashes."""
    return URI_ROOT + quote(id.named(several_collections), safe="", errors="replace")


def parse_uri(uri: str, collections: Collection[str]) -> tuple[DocumentId, str]:
    """Return the document ID and the heading of a URI; the document need not exist."""
    if not uri.startswith(URI_ROOT) or len(uri) > MAX_URI_LENGTH:
        raise NotFound(f"Not a document URI: {uri[:100]!r}", f"URIs have the form {URI_TEMPLATE}")
    path, _, fragment = uri.removeprefix(URI_ROOT).partition("#")
    path, fragment = unquote(path), unquote(fragment)
    if len(collections) == 1:
        return DocumentId(next(iter(collections)), path), fragment
    for name in sorted(collections, key=len, reverse=True):
        if path.startswith(f"{name}/"):
            return DocumentId(name, path.removeprefix(f"{name}/")), fragment
    raise NotFound(
        f"No such collection: {path[:100]!r}", f"Begin with one of: {', '.join(collections)}"
    )


class ResourceHandler:
    """Handles resource requests for one library."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return a page of documents; the cursor is that of the library."""
        after = params.cursor if params and params.cursor else ""
        page = await self._call(ctx, "documents", {"after": after, "limit": PAGE_SIZE})
        resources = [
            types.Resource(
                uri=document_uri(
                    DocumentId(document["collection"], document["path"]),
                    self.host.several_collections,
                ),
                name=one_line(document["path"]),
                mime_type=MARKDOWN,
                size=document["size"],
                annotations=types.Annotations(last_modified=document["modified"]),
            )
            for document in page["documents"]
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=page["next"])

    async def templates(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the only URI template."""
        prefix = ", which begins with its collection" if self.host.several_collections else ""
        document = types.ResourceTemplate(
            name="document",
            title="A document",
            uri_template=URI_TEMPLATE,
            description=f"The text of a document, by its path{prefix}.",
            mime_type=MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[document])

    async def read(
        self, ctx: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return the whole document, or the section that the URI's fragment names.

        The text is not quoted, because the field contains nothing else; invisible characters are made visible.
        """
        id, fragment = self._parse_uri(ctx, str(params.uri))
        ref = f"{id.path}#{fragment}" if fragment else id.path
        extract = await self._call(ctx, "get", {"ref": ref, "collection": id.collection})
        contents = types.TextResourceContents(
            uri=str(params.uri), mime_type=MARKDOWN, text=visible(extract["content"])
        )
        return types.ReadResourceResult(contents=[contents])

    def _parse_uri(self, ctx: ServerRequestContext[Any], uri: str) -> tuple[DocumentId, str]:
        try:
            return parse_uri(uri, self.host.library.collections)
        except MarklightError as error:
            raise self._protocol_error(ctx, error) from error

    async def _call(
        self, ctx: ServerRequestContext[Any], operation: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            return await self.host.call(operation, arguments)
        except MarklightError as error:
            raise self._protocol_error(ctx, error) from error

    def _protocol_error(self, ctx: ServerRequestContext[Any], error: MarklightError) -> MCPError:
        code = types.INTERNAL_ERROR
        if isinstance(error, UsageError):
            code = types.INVALID_PARAMS
        elif isinstance(error, NotFound):
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
        return MCPError(code, error_text(error, self.host.watcher))
