"""The page that people search with: its files as they are, under a policy that lets nothing else run."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from marklight.errors import NotFound

FOLDER = Path(__file__).parent.parent / "web"
FIRST = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    # Asked for each time and answered with 304: after an update nobody has half of the old page.
    "cache-control": "no-cache",
}


def page_routes() -> list[BaseRoute]:
    """`/` and `/page/NAME` for each file; read once, so that no request names a file on the disk."""
    files = {each.name: each.read_bytes() for each in FOLDER.iterdir() if each.suffix in TYPES}
    shown = {name: (content, _tag(content)) for name, content in files.items()}

    async def serve(request: Request) -> Response:
        name = request.path_params.get("name", FIRST)
        if name not in shown:
            raise NotFound(f"the page has no file {name[:100]!r}")
        content, tag = shown[name]
        headers = {**HEADERS, "etag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=TYPES[Path(name).suffix])

    return [Route("/", serve), Route("/page/{name}", serve)]


def _tag(content: bytes) -> str:
    return f'"{blake2b(content, digest_size=8).hexdigest()}"'
