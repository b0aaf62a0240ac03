"""Routes for the web page: its static files, images and attachments of collections, and the stream of changes.

Static files are read and compressed once: no request names a file on the disk. An image is opened by the library, which
refuses everything but image files inside a collection.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from marklight.errors import MarklightError, NotFound
from marklight.library import Library, overview
from marklight.parameters import Parameter
from marklight.report import Report
from marklight.surfaces.explain import LEGEND
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.errors import json_response
from marklight.surfaces.http.execution import EVENTS, error_event, event, event_stream
from marklight.surfaces.http.routes import parse_path, parse_query

if TYPE_CHECKING:
    from marklight.library.media import MediaFile

WEB_FOLDER = Path(__file__).parent.parent / "web"
INDEX_PAGE = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json",
}
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    # Revalidated with every request: after an update no browser mixes old and new files.
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
IMAGES = "/api/files/"
_SANDBOX = {
    # Scripts and requests of an SVG are blocked, also if it is opened by itself.
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    "cache-control": "no-cache",
}
MEDIA_HEADERS = {
    IMAGES: _SANDBOX,
    "/api/attachments/": {**_SANDBOX, "content-disposition": "attachment"},
}
"""Prefixes of the addresses of images, and of PDFs and audio files, with the headers of their responses."""
TICK_SECONDS = 1.0
"""Time between two checks of the indexing progress."""
HEARTBEAT_TICKS = 15
"""Ticks until a comment is sent, so that neither side takes the connection for dead."""
MAX_CHANGED = 200
"""Names of changed documents in an event; with more, the page asks for whatever it shows."""
NAME = Parameter.of("like", "string", "Words of a name.", required=True, maxLength=200)


class _File(NamedTuple):
    content: bytes
    compressed: bytes
    etag: str


def page_routes(host: LibraryHost) -> list[BaseRoute]:
    """Return the routes of the web page."""
    files = {
        file.name: _static_file(file.read_bytes())
        for file in WEB_FOLDER.iterdir()
        if file.suffix in MEDIA_TYPES
    }
    files["legend.json"] = _static_file(json.dumps(LEGEND).encode())

    async def serve(request: Request) -> Response:
        name = request.path_params.get("name", INDEX_PAGE)
        if name not in files:
            raise NotFound(f"No such file of the web page: {name[:100]!r}")
        file = files[name]
        headers = {**PAGE_HEADERS, "etag": file.etag}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        media_type = MEDIA_TYPES[Path(name).suffix]
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(file.compressed, headers=headers, media_type=media_type)
        return Response(file.content, headers=headers, media_type=media_type)

    return [
        Route("/", serve),
        Route("/page/{name}", serve),
        *(
            Route(f"{prefix}{{path:path}}", partial(media_file, host=host, prefix=prefix))
            for prefix in MEDIA_HEADERS
        ),
        Route("/api/events", partial(changes, host=host)),
        Route("/api/around/{path:path}", partial(neighbourhood, host=host)),
        Route("/api/names", partial(names, host=host)),
    ]


def _static_file(content: bytes) -> _File:
    etag = f'"{blake2b(content, digest_size=8).hexdigest()}"'
    return _File(content, gzip.compress(content, 9, mtime=0), etag)


async def media_file(request: Request, host: LibraryHost, prefix: str) -> Response:
    """Return an image of a collection, or an attachment, which a browser downloads instead of opening it in the page's origin."""
    parse_query(request, ())
    name = parse_path(request, prefix)

    def work(library: Library, **_: Any) -> MediaFile:
        from marklight.library.media import read_media  # loads the Markdown parser

        return read_media(library, name, "image" if prefix == IMAGES else "attachment")

    found = await host.run(work)
    headers = {**MEDIA_HEADERS[prefix], "etag": f'"{found.version}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


async def neighbourhood(request: Request, host: LibraryHost) -> Response:
    """Return what is beside a document: backlinks, related documents and the link graph."""
    parse_query(request, ())
    ref = parse_path(request, "/api/around/")
    return json_response(await host.run(lambda library, **_: overview.around(library, ref)))


async def names(request: Request, host: LibraryHost) -> Response:
    """Return the documents whose title, alias or path contains the words of a text, the best matches first."""
    text = parse_query(request, (NAME,))["like"]
    return json_response(await host.run(lambda library, **_: overview.names(library, text)))


async def changes(request: Request, host: LibraryHost) -> Response:
    """Stream events: `library` first and after every change, `changed` with names of documents, `indexing`."""
    parse_query(request, ())
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    return event_stream(_changes(host))


async def _changes(host: LibraryHost) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    names: list[str] = []
    seen_progress: Any = None

    def note(report: Report) -> None:
        """Called in the thread that changed the index."""
        with suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(wake, report)

    def wake(report: Report) -> None:
        several = host.several_collections
        moved = (id for pair in report.moved for id in pair)
        ids = (*report.added, *report.changed, *report.removed, *moved)
        names.extend(id.named(several) for id in ids[:MAX_CHANGED])
        changed.set()

    host.watcher.listeners.append(note)
    try:
        yield await _library(host)
        for tick in count(1):
            with anyio.move_on_after(TICK_SECONDS):
                await changed.wait()
            if changed.is_set():
                changed.clear()
                sent, names[:] = names[:MAX_CHANGED], []
                yield event("changed", {"refs": sent})
                yield await _library(host)
            progress = host.watcher.to_dict()["indexing"]
            if progress != seen_progress:
                seen_progress = progress
                yield event("indexing", {"indexing": progress})
                if progress is None:
                    yield await _library(host)
            if tick % HEARTBEAT_TICKS == 0:
                yield b": still here\n\n"
    finally:
        host.watcher.listeners.remove(note)


async def _library(host: LibraryHost) -> bytes:
    try:
        return event("library", await host.run(lambda library, **_: overview.overview(library)))
    except MarklightError as error:
        return error_event(error)


class BrowserCompression:
    """ASGI middleware: compresses responses to browsers; a program on the same machine would only wait for it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.compressing = GZipMiddleware(app, minimum_size=1000, compresslevel=5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_browser = scope["type"] == "http" and any(
            name == b"sec-fetch-mode" for name, _ in scope["headers"]
        )
        await (self.compressing if is_browser else self.app)(scope, receive, send)
