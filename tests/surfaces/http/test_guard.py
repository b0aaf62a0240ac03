"""Strangers stay outside on every route, and a token is asked of everybody where one is set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from marklight.errors import UsageError
from marklight.surfaces.http.address import Address
from marklight.surfaces.http.errors import Forbidden
from marklight.surfaces.http.guard import Guard
from tests.surfaces.http.serving import Served, serving

EVERYWHERE = ("/", "/health", "/openapi.json", "/api/status", "/api/search?q=a", "/mcp", "/nowhere")
TOKEN = "correct-horse"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("guard") / "docs") as each:
        yield each


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("locked") / "docs"
    with serving(folder, {"token": TOKEN}) as each:
        yield each


@pytest.mark.parametrize("target", EVERYWHERE)
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
def test_a_foreign_host_is_refused(served: Served, target: str, host: str) -> None:
    told = served.get(target, Host=host.format(port=served.port))
    assert told.status == 403
    assert told.json()["error"]["type"] == "Forbidden"


@pytest.mark.parametrize("target", EVERYWHERE)
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
def test_a_foreign_origin_is_refused(served: Served, target: str, origin: str) -> None:
    told = served.get(target, Origin=origin.format(port=served.port))
    assert told.status == 403


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("site", ["cross-site", "same-site", "anything"])
def test_what_a_browser_sends_for_another_page_is_refused(
    served: Served, target: str, site: str
) -> None:
    assert served.get(target, **{"Sec-Fetch-Site": site}).status == 403


def test_a_link_from_elsewhere_leads_to_the_page_and_nowhere_else(served: Served) -> None:
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    document, frame = {"Sec-Fetch-Dest": "document"}, {"Sec-Fetch-Dest": "iframe"}
    assert served.get("/?q=token", **visit, **document).status != 403
    assert served.get("/?q=token", **visit, **frame).status == 403
    assert served.get("/api/search?q=token", **visit, **document).status == 403


def test_our_own_names_and_page_are_welcome(served: Served) -> None:
    for name in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        host = f"{name}:{served.port}"
        assert served.get("/health", Host=host).status == 200
        assert served.get("/health", Host=host, Origin=f"http://{host.lower()}").status == 200
    for site in ("same-origin", "none"):
        assert served.get("/health", **{"Sec-Fetch-Site": site}).status == 200


def test_what_a_proxy_says_about_the_host_does_not_count(served: Served) -> None:
    own = {"X-Forwarded-Host": served.name, "Forwarded": f"host={served.name}"}
    assert served.get("/health", Host="evil.example", **own).status == 403
    others = {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "10.0.0.1"}
    assert served.get("/health", **others).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_an_address_beyond_this_machine_takes_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="token"):
        Address(host)
    assert Address(host, token="t").token == "t"


def test_an_empty_address_is_none() -> None:
    with pytest.raises(UsageError, match="empty"):
        Address("", token="t")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_this_machine_takes_none(host: str) -> None:
    assert not Address(host).token


def test_a_token_does_not_show_where_the_address_is_printed() -> None:
    assert TOKEN not in repr(Address(token=TOKEN))


def test_a_token_with_spaces_is_rejected() -> None:
    with pytest.raises(UsageError, match="spaces"):
        Address(token="two words")


@pytest.mark.parametrize("target", [each for each in EVERYWHERE if each != "/health"])
@pytest.mark.parametrize(
    "shown",
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
def test_without_the_token_nothing_is_told(
    locked: Served, target: str, shown: dict[str, str]
) -> None:
    headers = {name: value.replace("{port}", str(locked.port)) for name, value in shown.items()}
    told = locked.get(target, **headers)
    assert told.status == 401
    assert told.headers["www-authenticate"].startswith("Bearer")
    assert told.json()["error"]["type"] == "Unauthorized"


def test_with_the_token_all_is_told(locked: Served) -> None:
    assert locked.get("/health").status == 200
    told = locked.get("/api/search?q=token", Authorization=f"Bearer {TOKEN}")
    assert told.status == 200
    assert told.json()["results"]


def test_the_token_does_not_open_the_door_to_strangers(locked: Served) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert locked.get("/api/status", Host="evil.example", **right).status == 403
    assert locked.get("/api/status", Origin="http://evil.example", **right).status == 403
    assert locked.get("/health", Host="evil.example").status == 403


def test_a_person_comes_in_with_the_token_in_the_address_once(locked: Served) -> None:
    told = locked.get(f"/?q=a+b&token={TOKEN}&tag=c")
    assert told.status == 303
    assert told.headers["location"] == "/?q=a+b&tag=c"
    cookie = told.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    pair = cookie.partition(";")[0]
    assert locked.get("/api/status", Cookie=f"other=1; {pair}").status == 200
    assert locked.get("/api/status", Cookie=f"{pair}x").status == 401
    assert locked.get("/api/status", Cookie=pair, Origin="http://evil.example").status == 403


def test_a_wrong_token_in_the_address_and_one_elsewhere_open_nothing(locked: Served) -> None:
    assert locked.get("/?token=wrong").status == 401
    assert locked.get(f"/api/status?token={TOKEN}").status == 401
    assert locked.ask("POST", f"/?token={TOKEN}").status == 401


@pytest.mark.parametrize(
    ("host", "own", "called", "welcome"),
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
def test_a_machine_that_is_reached_at_all_its_addresses_is_called_by_each(
    host: str, own: str, called: str, welcome: bool
) -> None:
    came: list[str] = []

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        came.append(scope["path"])

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
    guard = Guard(inside, Address(host, token=TOKEN))
    with nullcontext() if welcome else pytest.raises(Forbidden):
        anyio.run(guard, scope, nothing, nothing)
    assert bool(came) is welcome
