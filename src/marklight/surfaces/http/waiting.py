"""Ask the library for somebody who may go away meanwhile: then nobody works on it any longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from starlette.requests import Request

from marklight.errors import ModelError, Stopped, UsageError
from marklight.surfaces import operations
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.parameters import parse


async def waited_for(
    request: Request, host: LibraryHost, operation: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What the library says, as long as the asker is there."""
    # Before a place is waited for: what makes no sense is told at once.
    parse(operations.OPERATIONS[operation].parameters, given)
    found: dict[str, Any] = {}
    failed: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            failed.append(Stopped("the asker went away"))
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            found = await host.call(operation, given)
        except Exception as error:
            failed.append(error)
        group.cancel_scope.cancel()
    if failed:
        raise asked_too_much(failed[0], given)
    return found


def asked_too_much(error: Exception, given: Mapping[str, Any]) -> Exception:
    """Whoever wants a cross-encoder that is not here is told so; to ask again does not help."""
    if isinstance(error, ModelError) and given.get("rerank"):
        return UsageError(error.message, error.hint)
    return error
