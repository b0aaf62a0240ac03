"""Call operations of a library as programs do: a name and validated values in, the JSON of the command line out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.operations import find_operation
from marklight.parameters import Operation

if TYPE_CHECKING:
    from marklight.library import Library

FOLDERS = ("near", "part")
"""Hooks that are folders."""


def call(
    library: Library, name: str, arguments: Mapping[str, Any], **context: Any
) -> dict[str, Any]:
    """Execute an operation with validated arguments and return its result as JSON values."""
    operation = find_operation(name)
    result = library.execute(name, operation.complete(arguments) | _hooks(operation, context))
    if name == "tags":
        return {"tags": result}
    return result if isinstance(result, dict) else result.to_dict()


def run(library: Library, name: str, arguments: Mapping[str, Any], **context: Any) -> Any:
    """Run an operation with the arguments of a call in another process; context that it does not take is ignored."""
    operation = find_operation(name)
    return library.run(name, operation.bind((), arguments) | _hooks(operation, context))


def _hooks(operation: Operation, context: Mapping[str, Any]) -> dict[str, Any]:
    hooks = {key: value for key, value in context.items() if key in operation.hooks and value}
    return hooks | {key: Path(hooks[key]) for key in FOLDERS if key in hooks}
