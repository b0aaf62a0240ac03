"""The web page: its static files and what only it asks for."""

from __future__ import annotations

from starlette.routing import BaseRoute

from marklight.surfaces.host import Host


def page_routes(_host: Host) -> list[BaseRoute]:
    """Every address of the page."""
    return []
