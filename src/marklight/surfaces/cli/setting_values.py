"""Show values of settings: secrets masked, tables and lists as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from marklight.surfaces import render

if TYPE_CHECKING:
    from marklight.settings import Ignored

SECRET = ("serve.token",)
"""Settings whose values nobody is shown."""


def masked(key: str, value: Any) -> Any:
    """Return the value, or a placeholder where it is a secret."""
    return "…" if key in SECRET and value else value


def value_text(key: str, value: Any) -> str:
    """Return the value on one line, as JSON."""
    value = masked(key, value)
    return render.to_json(list(value) if isinstance(value, tuple) else value, indent=None)


def ignored_values(ignored: Iterable[Ignored]) -> dict[str, dict[str, Any]]:
    """Return by key what of a folder's file is ignored; entries of one table are put together."""
    found: dict[str, dict[str, Any]] = {}
    for one in ignored:
        if not one.entry:
            value = masked(one.key, one.value)
            found[one.key] = {"value": value, "source": one.source, "reason": one.reason}
            continue
        row = found.setdefault(one.key, {"value": {}, "source": one.source, "reason": one.reason})
        row["value"][one.entry] = one.value
    return found
