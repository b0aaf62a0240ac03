"""The request guard: Host, Origin and Sec-Fetch-Site headers on every route, and the bearer token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from marklight.errors import UsageError
from marklight.surfaces.http import Address
from marklight.surfaces.http.errors import Forbidden
from marklight.surfaces.http.request_guard import RequestGuard
from tests.surfaces.http.serving import Served, serving

TARGETS = ("/", "/health", "/openapi.json", "/api/status", "/api/search?q=a", "/mcp", "/nowhere")
TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("guard") / "docs") as each:
        yield each


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("protected") / "docs"
    with serving(folder, {"token": TOKEN}) as each:
        yield each


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "localhost.:{port}",
        "user@127.0.0.1:{port}",
        "127.0.0.1:{port}@evil.example",
        "127.1:{port}",
        "2130706433:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "0.0.0.0:{port}",
        "127.0.0.1:{port},evil.example",
    ],
)
def test_a_foreign_host_header_is_rejected(served: Served, target: str, host: str) -> None:
    response = served.get(target, Host=host.format(port=served.port))
    assert response.status == 403
    assert response.json()["error"]["type"] == "Forbidden"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1:{port}/",
        "HTTP://127.0.0.1:{port}",
        "",
    ],
)
def test_a_foreign_origin_header_is_rejected(served: Served, target: str, origin: str) -> None:
    response = served.get(target, Origin=origin.format(port=served.port))
    assert response.status == 403


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_requests_of_other_sites_pages_are_rejected(served: Served, target: str, site: str) -> None:
    assert served.get(target, **{"Sec-Fetch-Site": site}).status == 403


def test_a_link_from_another_site_may_open_the_page_only(served: Served) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    document, frame = {"Sec-Fetch-Dest": "document"}, {"Sec-Fetch-Dest": "iframe"}
    assert served.get("/?q=token", **visit, **document).status != 403
    assert served.get("/?q=token", **visit, **frame).status == 403
    assert served.get("/api/search?q=token", **visit, **document).status == 403


def test_loopback_names_and_own_origin_are_accepted(served: Served) -> None:
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        host = f"{name}:{served.port}"
        assert served.get("/health", Host=host).status == 200
        assert served.get("/health", Host=host, Origin=f"http://{host.lower()}").status == 200
    for site in ("same-origin", "none"):
        assert served.get("/health", **{"Sec-Fetch-Site": site}).status == 200


def test_forwarded_host_headers_are_ignored(served: Served) -> None:
    own = {"X-Forwarded-Host": served.name, "Forwarded": f"host={served.name}"}
    assert served.get("/health", Host="evil.example", **own).status == 403
    others = {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "10.0.0.1"}
    assert served.get("/health", **others).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_an_address_other_than_loopback_requires_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="token"):
        Address(host)
    assert Address(host, token="t").token == "t"


def test_an_empty_address_is_rejected() -> None:
    with pytest.raises(UsageError, match="empty"):
        Address("", token="t")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_loopback_requires_no_token(host: str) -> None:
    assert not Address(host).token


def test_the_repr_of_an_address_hides_the_token() -> None:
    assert TOKEN not in repr(Address(token=TOKEN))


def test_a_token_with_spaces_is_rejected() -> None:
    with pytest.raises(UsageError, match="spaces"):
        Address(token="two words")


@pytest.mark.parametrize("target", [each for each in TARGETS if each != "/health"])
@pytest.mark.parametrize(
    "headers_sent",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer"},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer \xff"},
        {"Cookie": f"marklight={TOKEN}"},
        {"Cookie": "marklight-{port}="},
        {"Cookie": f"marklight-{{port}}={TOKEN}"},
    ],
)
def test_requests_without_the_token_get_401(
    protected: Served, target: str, headers_sent: dict[str, str]
) -> None:
    headers = {
        name: value.replace("{port}", str(protected.port)) for name, value in headers_sent.items()
    }
    response = protected.get(target, **headers)
    assert response.status == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["error"]["type"] == "Unauthorized"


def test_requests_with_the_token_are_answered(protected: Served) -> None:
    assert protected.get("/health").status == 200
    response = protected.get("/api/search?q=token", Authorization=f"Bearer {TOKEN}")
    assert response.status == 200
    assert response.json()["results"]


def test_the_token_does_not_allow_foreign_hosts_or_origins(protected: Served) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert protected.get("/api/status", Host="evil.example", **right).status == 403
    assert protected.get("/api/status", Origin="http://evil.example", **right).status == 403
    assert protected.get("/health", Host="evil.example").status == 403


def test_the_token_in_the_page_url_is_exchanged_for_a_cookie(protected: Served) -> None:
    response = protected.get(f"/?q=a+b&token={TOKEN}&tag=c")
    assert response.status == 303
    assert response.headers["location"] == "/?q=a+b&tag=c"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    pair = cookie.partition(";")[0]
    assert protected.get("/api/status", Cookie=f"other=1; {pair}").status == 200
    assert protected.get("/api/status", Cookie=f"{pair}x").status == 401
    assert protected.get("/api/status", Cookie=pair, Origin="http://evil.example").status == 403


def test_a_wrong_token_in_the_url_or_one_on_another_route_is_rejected(protected: Served) -> None:
    assert protected.get("/?token=wrong").status == 401
    assert protected.get(f"/api/status?token={TOKEN}").status == 401
    assert protected.request("POST", f"/?token={TOKEN}").status == 401


@pytest.mark.parametrize(
    ("host", "own", "called", "accepted"),
    [
        ("0.0.0.0", "192.168.1.7", "192.168.1.7:7433", True),
        ("0.0.0.0", "192.168.1.7", "localhost:7433", True),
        ("0.0.0.0", "192.168.1.7", "192.168.1.8:7433", False),
        ("0.0.0.0", "192.168.1.7", "evil.example:7433", False),
        ("::", "fe80::7", "[fe80::7]:7433", True),
        ("192.168.1.7", "192.168.1.7", "192.168.1.7:7433", True),
        ("192.168.1.7", "192.168.1.9", "192.168.1.9:7433", False),
    ],
)
def test_a_wildcard_address_accepts_the_ip_address_of_the_connection(
    host: str, own: str, called: str, accepted: bool
) -> None:
    passed: list[str] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["path"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError("nothing is read or sent")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/health",
        "raw_path": b"/health",
        "query_string": b"",
        "headers": [(b"host", called.encode())],
        "server": (own, 7433),
    }
    guard = RequestGuard(inside, Address(host, token=TOKEN))
    with nullcontext() if accepted else pytest.raises(Forbidden):
        anyio.run(guard, scope, nothing, nothing)
    assert bool(passed) is accepted


OBSIDIAN = "app://obsidian.md"
EXTENSION = "chrome-extension://abcdefghijklmnop"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {
        "token": TOKEN,
        "allow_hosts": ("host.docker.internal", "Notes.example:8443"),
        "allow_origins": (OBSIDIAN, EXTENSION),
    }
    with serving(tmp_path_factory.mktemp("opened") / "docs", settings) as each:
        yield each


BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_allowed_hosts_need_the_token(opened: Served) -> None:
    for host in (f"host.docker.internal:{opened.port}", "notes.example:8443"):
        assert opened.get("/api/status", Host=host, **BEARER).status == 200
        assert opened.get("/api/status", Host=host).status == 401
        own = {"Host": host, "Origin": f"http://{host}"}
        assert opened.get("/api/status", **own, **BEARER).status == 200
    for host in ("host.docker.internal", "host.docker.internal:1", "x.host.docker.internal:8443"):
        assert opened.get("/api/status", Host=host, **BEARER).status == 403


def test_the_error_names_the_setting_that_allows_a_host_or_an_origin(opened: Served) -> None:
    for header, setting in (("Host", "serve.allow_hosts"), ("Origin", "serve.allow_origins")):
        error = opened.get("/health", **{header: "https://other.example"}).json()["error"]
        assert setting in error["hint"]


@pytest.mark.parametrize("origin", [OBSIDIAN, EXTENSION])
def test_a_page_of_an_allowed_origin_can_read_answers_with_the_token(
    opened: Served, origin: str
) -> None:
    sent = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    answer = opened.get("/api/search?q=backup", **sent, **BEARER)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers
    refused = opened.get("/api/search?q=backup", **sent)
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == origin


def test_the_login_cookie_is_not_accepted_from_an_allowed_origin(opened: Served) -> None:
    cookie = opened.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    ours = {"Origin": f"http://{opened.name}", "Sec-Fetch-Site": "same-origin"}
    assert opened.get("/api/status", Cookie=cookie).status == 200
    assert opened.get("/api/status", Cookie=cookie, **ours).status == 200
    for origin in (OBSIDIAN, EXTENSION):
        for site in ("cross-site", "same-site", "none"):
            sent = {"Origin": origin, "Sec-Fetch-Site": site, "Cookie": cookie}
            assert opened.get("/api/status", **sent).status == 401
            assert opened.request("POST", "/mcp", headers=sent).status == 401
            assert opened.get("/api/status", **sent, **BEARER).status == 200


def test_a_browser_may_ask_before_it_sends_the_token(opened: Served) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,mcp-session-id",
        "Access-Control-Request-Private-Network": "true",
    }
    answer = opened.request("OPTIONS", "/mcp", headers={"Origin": OBSIDIAN, **asked})
    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == OBSIDIAN
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "content-type", "mcp-session-id"} <= set(allowed)
    for origin in ("https://evil.example", "null", "app://obsidian.md.evil.example"):
        answer = opened.request("OPTIONS", "/mcp", headers={"Origin": origin, **asked})
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    headers = {"Host": "evil.example", "Origin": OBSIDIAN, **asked}
    assert opened.request("OPTIONS", "/mcp", headers=headers).status == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "app://obsidian.md:1", "app://obsidian.md/"]
)
def test_other_origins_stay_rejected(opened: Served, origin: str) -> None:
    answer = opened.get("/api/status", Origin=origin, **BEARER)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("hosts", "origins"),
    [
        ((), ("*",)),
        ((), ("null",)),
        ((), ("https://a.example/path",)),
        ((), ("https://*.a.example",)),
        (("*",), ()),
        (("a b",), ()),
        (("http://a.example",), ()),
        (("",), ()),
    ],
)
def test_wildcards_and_other_forms_are_refused(
    hosts: tuple[str, ...], origins: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="Invalid value in serve"):
        Address(token=TOKEN, allow_hosts=hosts, allow_origins=origins)


def test_further_hosts_and_origins_require_a_token() -> None:
    for given in ({"allow_hosts": ("a.example",)}, {"allow_origins": (OBSIDIAN,)}):
        with pytest.raises(UsageError, match="so a token is required"):
            Address(**given)  # type: ignore[arg-type]
