"""Who may ask: nobody who came by another name or from another page, and with a token only who shows it."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from marklight.surfaces.http.address import Address
from marklight.surfaces.http.errors import BadRequest, Forbidden, Unauthorized

OPEN = "/health"
"""What needs no token, so that others can tell that we live."""
PAGE = "/"
"""Where a person comes in: by a link from elsewhere, or with the token in the address."""
OUR_OWN = ("same-origin", "none")
"""What a browser says of a request by our own page, or by its user. `same-site` is another port of this
machine: somebody else."""


class Guard:
    """Turns strangers away, on every route and where there is none."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.app = app
        self.address = address
        # Cookies go to every port of a host: the token itself must not be one, and this ends with us.
        self._session = token_urlsafe(32)
        self._cookie = f"marklight-{address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._demand_plain(scope)
        self._demand_ours(scope)
        if self.address.token and scope["path"] != OPEN:
            if entry := self._entry(scope):
                await entry(scope, receive, send)
                return
            self._demand_token(scope)
        await self.app(scope, receive, send)

    def _demand_plain(self, scope: Scope) -> None:
        """A target that names a host, as of a proxy, would have two hosts."""
        if scope["http_version"] not in ("1.0", "1.1"):
            raise BadRequest("this server speaks HTTP/1.1")
        if not scope["raw_path"].startswith(b"/"):
            raise BadRequest("a request target is a path, such as /api/search")

    def _demand_ours(self, scope: Scope) -> None:
        """Names lead to addresses at the will of those who own the names; ours are of this machine."""
        hosts = _values(scope, b"host")
        names = self._names(scope)
        if len(hosts) != 1 or hosts[0].lower() not in names:
            raise Forbidden(
                "this server is not asked by that name", f"Use {self.address.url} to ask it"
            )
        for origin in _values(scope, b"origin"):
            if origin not in {f"{scope['scheme']}://{name}" for name in names}:
                raise Forbidden("pages of others may not ask this server")
        sites = _values(scope, b"sec-fetch-site")
        if any(site not in OUR_OWN for site in sites) and not _is_visit(scope):
            raise Forbidden("pages of others may not ask this server")

    def _names(self, scope: Scope) -> frozenset[str]:
        own = scope.get("server")
        if not self.address.is_wildcard or not own:
            return self.address.host_names
        # The address that this very connection came to: a number, which nobody can point elsewhere.
        return self.address.host_names | set(self.address.with_port(own[0].removeprefix("::ffff:")))

    def _demand_token(self, scope: Scope) -> None:
        shown = [
            value[7:]
            for value in _values(scope, b"authorization")
            if value[:7].lower() == "bearer "
        ]
        if any(_same(each, self.address.token) for each in shown):
            return
        if any(_same(each, self._session) for each in _cookies(scope, self._cookie)):
            return
        raise Unauthorized(
            "this server takes a token",
            "Send it as `Authorization: Bearer …`, or open the page once with /?token=…",
            {"www-authenticate": 'Bearer realm="marklight"'},
        )

    def _entry(self, scope: Scope) -> Response | None:
        """For a person with the token in the address: a cookie, and the address without it."""
        if scope["method"] != "GET" or scope["path"] != PAGE:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for name, value in pairs if name == "token"]
        if not any(_same(each, self.address.token) for each in shown):
            return None
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        return Response(
            status_code=303,
            headers={"location": f"{PAGE}?{rest}" if rest else PAGE, "set-cookie": cookie},
        )


def _is_visit(scope: Scope) -> bool:
    """Somebody follows a link to the page, which holds nothing before it asks by itself."""
    return (
        scope["method"] == "GET"
        and scope["path"] == PAGE
        and _values(scope, b"sec-fetch-mode") == ["navigate"]
        and _values(scope, b"sec-fetch-dest") == ["document"]
    )


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _cookies(scope: Scope, name: str) -> Iterable[str]:
    for header in _values(scope, b"cookie"):
        for pair in header.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                yield value


def _same(shown: str, known: str) -> bool:
    """Whether they are equal, in a time that does not tell how far."""
    return hmac.compare_digest(shown.encode("latin-1", "replace"), known.encode())
