"""Documents as resources: listed a page at a time, read by their address, never from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from marklight.errors import MarklightError, NotFound, UsageError
from marklight.escaping import one_line, visible
from marklight.model import DocumentId
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.addresses import TEMPLATE, address, read_address
from marklight.surfaces.mcp.wording import error_text

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

MARKDOWN = "text/markdown"
PAGE = 100
"""Documents on one page of the list."""
RESOURCE_NOT_FOUND = -32002
"""What versions of the protocol up to 2025-11-25 call it; later ones say invalid parameters."""


class Resources:
    """The documents of one library."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """A page of them; a cursor is what the library itself goes on with."""
        after = params.cursor if params and params.cursor else ""
        found = await self._call(ctx, "documents", {"after": after, "limit": PAGE})
        resources = [
            types.Resource(
                uri=address(
                    DocumentId(each["collection"], each["path"]), self.host.several_collections
                ),
                name=one_line(each["path"]),
                mime_type=MARKDOWN,
                size=each["size"],
                annotations=types.Annotations(last_modified=each["modified"]),
            )
            for each in found["documents"]
        ]
        return types.ListResourcesResult(resources=resources, next_cursor=found["next"])

    async def templates(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The one form that all addresses have."""
        begins = ", which begins with its collection" if self.host.several_collections else ""
        document = types.ResourceTemplate(
            name="document",
            title="A document",
            uri_template=TEMPLATE,
            description=f"A document by its path{begins}, as it stands in the file.",
            mime_type=MARKDOWN,
        )
        return types.ListResourceTemplatesResult(resource_templates=[document])

    async def read(
        self, ctx: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return the whole document, or the section that a fragment names.

        It is alone in its field, so nothing is quoted; but a model reads it, so nothing stays hidden.
        """
        id, fragment = self._document(ctx, str(params.uri))
        ref = f"{id.path}#{fragment}" if fragment else id.path
        found = await self._call(ctx, "get", {"ref": ref, "collection": id.collection})
        contents = types.TextResourceContents(
            uri=str(params.uri), mime_type=MARKDOWN, text=visible(found["content"])
        )
        return types.ReadResourceResult(contents=[contents])

    def _document(self, ctx: ServerRequestContext[Any], uri: str) -> tuple[DocumentId, str]:
        try:
            return read_address(uri, self.host.library.collections)
        except MarklightError as error:
            raise self._refused(ctx, error) from error

    async def _call(
        self, ctx: ServerRequestContext[Any], operation: str, given: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            return await self.host.call(operation, given)
        except MarklightError as error:
            raise self._refused(ctx, error) from error

    def _refused(self, ctx: ServerRequestContext[Any], error: MarklightError) -> MCPError:
        code = types.INTERNAL_ERROR
        if isinstance(error, UsageError):
            code = types.INVALID_PARAMS
        elif isinstance(error, NotFound):
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
        return MCPError(code, error_text(error, self.host.watcher))
