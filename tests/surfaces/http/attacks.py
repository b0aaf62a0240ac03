"""Hostile requests as bytes, each with the allowed status codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

NAME = b"HOST-AND-PORT"
"""Placeholder for the server's host and port."""
DEEP = b"[" * 100_000


class Attack(NamedTuple):
    """A hostile request; status 0 means that the connection may be closed without a response."""

    title: str
    sent: bytes
    allowed: tuple[int, ...]


def request(
    target: bytes,
    method: bytes = b"GET",
    body: bytes = b"",
    headers: tuple[bytes, ...] = (),
    host: bytes | None = NAME,
    version: bytes = b"HTTP/1.1",
) -> bytes:
    own = [] if host is None else [b"Host: " + host]
    if body:
        own.append(b"Content-Length: %d" % len(body))
        if not any(each.lower().startswith(b"content-type") for each in headers):
            own.append(b"Content-Type: application/json")
    lines = [b"%b %b %b" % (method, target, version), *own, *headers, b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def posted(body: bytes | object, *headers: bytes) -> bytes:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(b"/api/search", b"POST", sent, headers)


def attacks() -> Iterator[Attack]:
    yield from traversals()
    yield from rebindings()
    yield from oversized()
    yield from malformed()
    yield from wrong_types()
    yield from header_tricks()
    yield from method_tricks()


TRAVERSALS = (
    b"../secret.md",
    b"../../secret.md",
    b"deploy/../../secret.md",
    b"./../secret.md",
    b"....//secret.md",
    b"..%2fsecret.md",
    b"..%2Fsecret.md",
    b"%2e%2e/secret.md",
    b"%2e%2e%2fsecret.md",
    b"%252e%252e%252fsecret.md",
    b"..%252fsecret.md",
    b"..%5csecret.md",
    b"..\\secret.md",
    b"%2e%2e%5csecret.md",
    b"..%c0%afsecret.md",
    b"%c0%ae%c0%ae/secret.md",
    b"..%ef%bc%8fsecret.md",
    b"..;/secret.md",
    b"//etc/passwd",
    b"/etc/passwd",
    b"%2fetc%2fpasswd",
    b"%252fetc%252fpasswd",
    b"file:///etc/passwd",
    b"C:%5csecret.md",
    b"C:/secret.md",
    b"%5c%5chost%5cshare%5csecret.md",
    b"%5c%5c%3f%5cC:%5csecret.md",
    b"CON",
    b"auth.md::$DATA",
    b"auth.md%00",
    b"auth.md%00.txt",
    b"%00",
    b"auth.md%0d%0aX-Evil:%201",
    b"link-to-secret.md",
    b"folder-out/secret.md",
    b".marklight/index.db",
    b".marklight%2findex.db",
    b"marklight.toml",
    b"~/secret.md",
    b"%7eroot/secret.md",
    b"$HOME/secret.md",
    b"%ff%fe",
    b"%ed%a0%80",
    b"%",
    b"%zz",
    b"a/" * 2000,
    b"a" * 5001,
)


def traversals() -> Iterator[Attack]:
    for path in TRAVERSALS:
        for above in (b"/api/documents/", b"/api/outline/"):
            yield Attack("traversal", request(above + path), (404, 422))
        yield Attack("static", request(b"/page/" + path), (404,))
    yield Attack("above all", request(b"/../secret.md"), (404,))
    yield Attack("above all", request(b"/%2e%2e/secret.md"), (404,))
    yield Attack("graph", request(b"/api/graph?path=../secret.md"), (404,))
    yield Attack("links", request(b"/api/links/..%2fsecret.md"), (404,))
    yield Attack("related", request(b"/api/related/..%2fsecret.md"), (404,))
    yield Attack("html", request(b"/api/page/..%2fsecret.md"), (404,))
    yield Attack("by heading", request(b"/api/documents/..%2fsecret.md?heading=x"), (404,))
    yield Attack("by lines", request(b"/api/documents/..%2fsecret.md?lines=1-9"), (404,))
    yield Attack("a part", request(b"/api/documents/..%2fsecret.md:1-9"), (404,))
    yield Attack("engine", posted({"query": "a", "settings": {"engine": "file:/tmp"}}), (422,))
    outside = {"query": "a", "settings": {"collections": {"x": "/"}}}
    yield Attack("collections", posted(outside), (422,))
    yield Attack("model", posted({"query": "a", "settings": {"model": {"name": "/"}}}), (422,))


def rebindings() -> Iterator[Attack]:
    for host in (b"evil.example", b"evil.example:80", NAME + b".evil.example", b"", b" ", b"0"):
        for target in (b"/", b"/health", b"/api/search?q=a", b"/mcp", b"/page/main.js"):
            yield Attack("host", request(target, host=host), (400, 403))
    for origin in (b"null", b"http://evil.example", b"http://localhost:3000", b"file://"):
        own = (b"Origin: " + origin,)
        yield Attack("origin", request(b"/api/search?q=a", headers=own), (403,))
        yield Attack("origin", posted(b'{"query": "a"}', *own), (403,))
        yield Attack("origin", request(b"/mcp", b"POST", b"{}", own), (403,))
        yield Attack("preflight", request(b"/api/search", b"OPTIONS", headers=own), (403,))
    for site in (b"cross-site", b"same-site"):
        own = (b"Sec-Fetch-Site: " + site,)
        yield Attack("site", request(b"/api/search/stream?q=a", headers=own), (403,))


def oversized() -> Iterator[Attack]:
    big = b'{"query": "' + b"a" * 1_100_000 + b'"}'
    yield Attack("body", posted(big), (413,))
    yield Attack("mcp body", request(b"/mcp", b"POST", big), (413,))
    chunk = b"186A0\r\n" + b"a" * 100_000 + b"\r\n"
    coded = request(b"/api/search", b"POST", headers=(b"Transfer-Encoding: chunked",))
    yield Attack("chunks", coded + chunk * 12 + b"0\r\n\r\n", (413,))
    length = (b"Content-Length: 99999999999", b"Content-Type: application/json")
    yield Attack("promised", request(b"/api/search", b"POST", headers=length), (413,))
    endless = (b"Content-Length: " + b"9" * 30,)
    yield Attack("never", request(b"/api/search", b"POST", headers=endless), (400, 413))
    yield Attack("query", posted({"query": "a" * 100_001}), (422,))
    yield Attack("list", posted({"query": "a", "tag": ["t"] * 501}), (422,))
    yield Attack("item", posted({"query": "a", "tag": ["t" * 1001]}), (422,))
    table = {"query": "a", "where": {str(at): "x" for at in range(501)}}
    yield Attack("table", posted(table), (422,))
    yield Attack("wildcards", posted({"query": "a", "path": ["*a" * 25]}), (422,))
    yield Attack("address", request(b"/api/search?q=" + b"a" * 70_000), (400,))
    yield Attack("longer address", request(b"/api/search?q=" + b"a" * 200_000), (400,))
    yield Attack("values", request(b"/api/search?q=a" + b"&tag=" * 6000), (400,))
    yield Attack("fifty-one", request(b"/api/search?q=a" + b"&tag=t" * 51), (422,))
    yield Attack("header", request(b"/health", headers=(b"X: " + b"a" * 200_000,)), (400,))
    many = tuple(b"X-%d: 1" % at for at in range(20_000))
    yield Attack("headers", request(b"/health", headers=many), (400,))
    yield Attack("method", request(b"/health", b"A" * 200_000), (400,))
    yield Attack("limit", posted({"query": "a", "limit": 10**9}), (422,))
    yield Attack("context", posted({"query": "a", "context": 10**9}), (422,))
    yield Attack("depth", request(b"/api/graph?path=auth.md&depth=9"), (422,))
    yield Attack("nodes", request(b"/api/graph?limit=501"), (422,))


def malformed() -> Iterator[Attack]:
    for body in (
        b"{",
        b"}",
        b'{"query": "a"',
        b'{"query": "a",}',
        b"{'query': 'a'}",
        b'{"query": a}',
        b'{"query": "a"} {"query": "b"}',
        b'{"query": "a", "query": "b"}',
        b'{"query": "a", "where": {"x": "1", "x": "2"}}',
        b'{"query": "a", "limit": NaN}',
        b'{"query": "a", "limit": Infinity}',
        b'{"query": "a", "min_confidence": -Infinity}',
        b'{"query": "a", "limit": ' + b"9" * 5000 + b"}",
        b'{"query": "a\n"}',
        b'{"query": "\\ud8"}',
        b'{"query": "\xff\xfe"}',
        '{"query": "a"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"query": "a"}',
        b"\x00",
        b"null",
        b"[]",
        b'"query"',
        b"17",
        b"true",
        DEEP,
        b'{"a":' * 50_000,
        b'{"query": "a", "settings": ' + b'{"a":' * 20 + b"1" + b"}" * 20 + b"}",
    ):
        yield Attack("body", posted(body), (400,))
    yield Attack("empty", request(b"/api/search", b"POST"), (400,))
    for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data", b""):
        sent = posted(b'{"query": "a"}', b"Content-Type: " + kind)
        yield Attack("kind", sent, (400,))
    yield Attack("encoding", request(b"/api/search?q=%ff"), (400,))
    yield Attack("half a pair", request(b"/api/search?q=%ed%a0%80"), (400,))


def wrong_types() -> Iterator[Attack]:
    for given in (
        {},
        {"query": None},
        {"query": 1},
        {"query": ["a"]},
        {"query": {"a": 1}},
        {"query": ""},
        {"query": " \n"},
        {"query": "a", "limit": "five"},
        {"query": "a", "limit": True},
        {"query": "a", "limit": 1.5},
        {"query": "a", "limit": 0},
        {"query": "a", "limit": -1},
        {"query": "a", "limit": 1e300},
        {"query": "a", "mode": "magic"},
        {"query": "a", "mode": 1},
        {"query": "a", "min_confidence": 2},
        {"query": "a", "min_confidence": "one"},
        {"query": "a", "tag": {"t": 1}},
        {"query": "a", "tag": [1]},
        {"query": "a", "tag": ["\ud800"]},
        {"query": "a", "tag": ["\0"]},
        {"query": "a", "path": {"a": 1}},
        {"query": "a", "where": [5]},
        {"query": "a", "where": {"a": 1}},
        {"query": "a", "where": {"\ud800": "a"}},
        {"query": "a", "after": "someday"},
        {"query": "a", "after": 2026},
        {"query": "a", "after": "2026-02-31"},
        {"query": "a", "explain": "yes"},
        {"query": "a", "explain": 1},
        {"query": "a", "settings": "x"},
        {"query": "a", "settings": {"search": 1}},
        {"query": "a", "settings": {"search": {"nothing": 1}}},
        {"query": "a", "settings": {"search": {"\ud800": 1}}},
        {"query": "a", "settings": {"search": {"recency": {"strength": "x"}}}},
        {"query": "a", "collection": ["nowhere"]},
        {"query": "a", "near": "/"},
        {"query": "a", "part": "/"},
        {"query": "a", "progress": 1},
        {"query": "a", "assignments": ["engine=file:x"]},
        {"query": "a", "__class__": 1},
        {"q": "a"},
    ):
        yield Attack("type", posted(given), (422,))
    for query in (
        b"q=a&limit=1e3000",
        b"q=a&limit=0x10",
        b"q=a&limit=%C2%B2",
        b"q=a&limit=",
        b"q=a&min_confidence=nan",
        b"q=a&min_confidence=inf",
        b"q=a&q=b",
        b"q=a&where=x",
        b"q=a&where==x",
        b"q[]=a",
        b"q=a&settings=x",
        b"q=a&near=/",
        b"",
    ):
        yield Attack("address", request(b"/api/search?" + query), (422,))


def header_tricks() -> Iterator[Attack]:
    body = b'{"query": "a"}'
    evil = b"evil.example"
    yield Attack("two hosts", request(b"/health", headers=(b"Host: " + evil,)), (400,))
    yield Attack("two of one", request(b"/health", headers=(b"Host: " + NAME,)), (400,))
    yield Attack("no host", request(b"/health", host=None), (400,))
    yield Attack("no host, 1.0", request(b"/health", host=None, version=b"HTTP/1.0"), (403,))
    yield Attack("foreign, 1.0", request(b"/", host=evil, version=b"HTTP/1.0"), (403,))
    yield Attack("user", request(b"/health", host=b"a@" + NAME), (400, 403))
    yield Attack("user after", request(b"/health", host=NAME + b"@" + evil), (400, 403))
    yield Attack("path in host", request(b"/health", host=NAME + b"/x"), (400, 403))
    yield Attack("comma", request(b"/health", host=NAME + b"," + evil), (400, 403))
    yield Attack("absolute", request(b"http://evil.example/health"), (400,))
    yield Attack("absolute, ours", request(b"http://" + NAME + b"/health"), (400,))
    yield Attack("authority", request(NAME, b"CONNECT"), (400,))
    yield Attack("star", request(b"*", b"OPTIONS"), (400,))
    yield Attack("no stroke", request(b"health"), (400,))
    forwarded = (b"X-Forwarded-Host: " + NAME, b"X-Host: " + NAME, b"X-Original-URL: /health")
    yield Attack("forwarded", request(b"/health", host=evil, headers=forwarded), (403,))
    folded = request(b"/health", host=evil, headers=(b"X: 1\r\n Host: " + NAME,))
    yield Attack("folded", folded, (400, 403))
    yield Attack("blank name", request(b"/health", headers=(b"Host : " + evil,)), (400,))
    yield Attack("bare end", request(b"/health", headers=(b"X: 1\nHost: " + evil,)), (400,))
    yield Attack("NUL", request(b"/health", headers=(b"X: \0",)), (400,))
    yield Attack("no colon", request(b"/health", headers=(b"nothing",)), (400,))
    both = (b"Transfer-Encoding: chunked", b"Content-Type: application/json")
    smuggled = request(b"/api/search", b"POST", body, both)
    yield Attack("two lengths", smuggled, (400,))
    for coding in (b"xchunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"\x0bchunked"):
        sent = request(b"/api/search", b"POST", headers=(b"Transfer-Encoding: " + coding,))
        yield Attack("coding", sent + b"0\r\n\r\n", (400,))
    chunked = request(b"/api/search", b"POST", headers=both)
    yield Attack("chunk size", chunked + b"zz\r\n{}\r\n0\r\n\r\n", (400, 0))
    yield Attack("chunk size", chunked + b"-1\r\n{}\r\n0\r\n\r\n", (400, 0))
    yield Attack("chunk size", chunked + b"f" * 40 + b"\r\n{}\r\n", (400, 0))
    for length in (b"-1", b"+5", b"0x5", b"5, 6", b"five", b"1e1"):
        sent = request(b"/api/search", b"POST", headers=(b"Content-Length: " + length,))
        yield Attack("length", sent + b"{}", (400,))
    two = (b"Content-Length: 5", b"Content-Length: 6")
    yield Attack("lengths", request(b"/api/search", b"POST", headers=two) + b"hello!", (400,))
    short = (b"Content-Length: 100", b"Content-Type: application/json")
    yield Attack("short", request(b"/api/search", b"POST", headers=short) + body, (400, 0))
    upgrade = (b"Upgrade: websocket", b"Connection: upgrade", b"Sec-WebSocket-Key: x")
    yield Attack("socket", request(b"/nowhere", headers=upgrade), (404,))
    yield Attack("version", request(b"/health", version=b"HTTP/2.0"), (400,))
    yield Attack("version", request(b"/health", version=b"HTTP/9"), (400,))
    yield Attack("old", b"GET /health\r\n\r\n", (400,))
    yield Attack("h2", b"PRI * HTTP/2.0\r\nConnection: close\r\n\r\n", (400,))
    yield Attack("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", (400,))
    yield Attack("noise", bytes(range(256)) + b"\r\n\r\n", (400,))
    yield Attack("blank in target", request(b"/health x"), (400,))
    yield Attack("bytes in target", request(b"/api/search?q=\xff"), (400,))


def method_tricks() -> Iterator[Attack]:
    for method in (b"PUT", b"PATCH", b"DELETE", b"TRACE", b"OPTIONS", b"PROPFIND", b"get"):
        yield Attack("method", request(b"/api/status", method), (405,))
        yield Attack("method", request(b"/api/documents/auth.md", method), (405,))
    override = (b"X-HTTP-Method-Override: GET",)
    yield Attack("override", request(b"/api/status", b"DELETE", headers=override), (405,))
    yield Attack("to read", request(b"/api/status", b"POST", b"{}"), (405,))
    yield Attack("write", request(b"/api/documents/new.md", b"PUT", b"# New"), (405,))
    yield Attack("no method", request(b"/health", b""), (400,))
    yield Attack("brackets", request(b"/health", b"GE(T"), (400,))
