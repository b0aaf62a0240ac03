"""What may follow what somebody types: paths, headings and tags of the library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import mcp_types as types

from marklight.errors import MarklightError
from marklight.escaping import one_line
from marklight.surfaces.host import LibraryHost

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

MOST = 100
"""Values in one answer, as the protocol has it."""


class Completions:
    """Values for the arguments of prompts and of the template of addresses."""

    def __init__(self, host: LibraryHost) -> None:
        self.host = host

    async def complete(
        self, ctx: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """Those that begin with what is typed, then those that hold it; nothing where nothing is known."""
        name, typed = params.argument.name, params.argument.value[:1000]
        known = (params.context.arguments if params.context else None) or {}
        try:
            if name == "path":
                values = await self._paths(typed)
            elif name == "tag":
                values = await self._tags(typed)
            elif name == "heading" and known.get("path"):
                values = await self._headings(known["path"], typed)
            else:
                values = []
        except MarklightError:
            values = []  # an empty list under somebody's cursor says as much as an error would
        # A value is inserted as it is, so one that cannot be shown as it is is not offered.
        values = [value for value in values if value == one_line(value)]
        more = len(values) > MOST
        completion = types.Completion(values=values[:MOST], has_more=more)
        return types.CompleteResult(completion=completion)

    async def _paths(self, typed: str) -> list[str]:
        given: dict[str, Any] = {"limit": MOST + 1}
        if self.host.several_collections:
            # The collection is part of what is typed, so the library cannot choose by it.
            found = (await self.host.call("documents", {"limit": 1000}))["documents"]
            return _alike((f"{each['collection']}/{each['path']}" for each in found), typed)
        if typed:
            given["like"] = typed
        found = (await self.host.call("documents", given))["documents"]
        return [each["path"] for each in found]

    async def _tags(self, typed: str) -> list[str]:
        return _alike((await self.host.call("tags", {}))["tags"], typed.lstrip("#"))

    async def _headings(self, path: str, typed: str) -> list[str]:
        found = (await self.host.call("outline", {"path": path}))["outline"]
        return _alike((each["text"] for each in found), typed)


def _alike(values: Iterable[str], typed: str) -> list[str]:
    text = typed.lower()
    found = [value for value in dict.fromkeys(values) if text in value.lower()]
    return sorted(found, key=lambda value: not value.lower().startswith(text))
