"""Images of collections are served within limits, changes are streamed, and the page is compressed."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from marklight.library import media
from tests.making import write
from tests.surfaces.http.serving import Served, serving

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    + "1f15c489"
    + "0000000a49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>top.ran=1</script></svg>'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("images")
    folder = write(
        root / "docs",
        {
            "a.md": "# A\n\n![one](img/a.png) ![[deep.png|50]] ![](../outside.png) ![x](https://h.invalid/x.png)\n\n![[b#Part]]\n",
            "b.md": "# B\n\n## Part\n\nEmbedded with ![[b c.svg]].\n",
            ".hidden/x.md": "# No\n",
        },
    )
    (folder / "img").mkdir()
    (folder / "img" / "a.png").write_bytes(PNG)
    (folder / "img" / "paper.pdf").write_bytes(b"%PDF")
    (root / "outside.pdf").write_bytes(b"%PDF")
    (folder / "link.pdf").symlink_to(root / "outside.pdf")
    (folder / "x" / "y").mkdir(parents=True)
    (folder / "x" / "y" / "deep.png").write_bytes(PNG)
    (folder / "b c.svg").write_bytes(SVG)
    (folder / ".hidden" / "secret.png").write_bytes(PNG)
    (folder / "secret.txt").write_text("secret")
    (folder / "folder.png").mkdir()
    (folder / "large.png").write_bytes(PNG)
    os.truncate(folder / "large.png", media.MAX_BYTES + 1)
    os.mkfifo(folder / "pipe.png")
    (root / "outside.png").write_bytes(PNG)
    (folder / "link.png").symlink_to(root / "outside.png")
    (folder / "linked").symlink_to(root)
    with serving(folder) as each:
        yield each


def test_an_image_of_the_collection_is_served_with_its_type_and_version(served: Served) -> None:
    response = served.get("/api/files/img/a.png")
    assert (response.status, response.body) == (200, PNG)
    assert response.headers["content-type"] == "image/png"
    assert response.headers["x-content-type-options"] == "nosniff"
    again = served.request(
        "GET", "/api/files/img/a.png", headers={"If-None-Match": response.headers["etag"]}
    )
    assert (again.status, again.body) == (304, b"")


def test_a_pdf_is_downloaded_and_nothing_else_is_an_attachment(served: Served) -> None:
    response = served.get("/api/attachments/img/paper.pdf")
    assert (response.status, response.body) == (200, b"%PDF")
    assert response.headers["content-type"] == "application/pdf"
    assert response.headers["content-disposition"] == "attachment"
    assert response.headers["x-content-type-options"] == "nosniff"
    for path in ("img/a.png", "a.md", "../outside.pdf", "link.pdf", "img/missing.pdf"):
        assert served.get(f"/api/attachments/{path}").status == 404
    assert served.get("/api/files/img/paper.pdf").status == 404


def test_an_svg_is_sandboxed(served: Served) -> None:
    response = served.get("/api/files/b%20c.svg")
    assert response.body == SVG
    assert response.headers["content-security-policy"].endswith("sandbox")
    assert "script-src" not in response.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "a.md", "secret.txt", "missing.png", "folder.png", "pipe.png", "link.png", "linked/outside.png", "../outside.png",
        "%2e%2e/outside.png", "img/../img/a.png", "/etc/x.png", "img//a.png", "./img/a.png", ".hidden/secret.png", "a.png%00",
        "img%5ca.png", "", "x" * 5000 + ".png", "%ff.png", "c:a.png",
    ],
)  # fmt: skip
def test_nothing_but_image_files_inside_the_collection_is_served(served: Served, path: str) -> None:
    response = served.get(f"/api/files/{path}")
    assert response.status == 404, response.body[:200]
    assert response.headers["content-type"] == "application/json"


def test_an_image_that_is_too_large_is_refused(served: Served) -> None:
    assert served.get("/api/files/large.png").status == 422


def test_a_page_has_the_addresses_of_its_images_and_what_it_embeds(served: Served) -> None:
    html = served.get("/api/page/a.md").json()["html"]
    assert 'src="/api/files/img/a.png"' in html
    assert 'src="/api/files/x/y/deep.png"' in html
    assert 'src="/api/files/b%20c.svg"' in html
    assert "Embedded with" in html
    assert html.count(" src=") == 3
    assert 'data-image="h.invalid"' in html


def test_an_unchanged_page_is_not_sent_again(served: Served) -> None:
    etag = served.get("/api/page/a.md").headers["etag"]
    again = served.request("GET", "/api/page/a.md", headers={"If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")


def events(served: Served) -> Generator[tuple[str, Any], None, None]:
    with served.raw() as connection:
        connection.sendall(b"GET /api/events HTTP/1.1\r\nHost: %s\r\n\r\n" % served.name.encode())
        name = ""
        for line in connection.makefile("r", encoding="utf-8", newline="\n"):
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])


def test_the_stream_reports_the_library_and_every_change(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "docs",
        {"guide/a.md": "---\ntags: [x]\n---\n# A\n\nText.\n", "b.md": "# B\n\nMore.\n"},
    )
    with serving(folder) as served:
        stream = events(served)
        name, first = next(stream)
        assert name == "library"
        assert first["documents"] == 2
        assert first["folders"] == {"guide": 1}
        assert first["tags"] == {"x": 1}
        assert {each["title"] for each in first["recent"]} == {"A", "B"}
        (folder / "b.md").write_text("# B\n\nChanged.\n")
        assert next(data for name, data in stream if name == "changed") == {"refs": ["b.md"]}
        assert (
            next(data for name, data in stream if name == "library")["generation"]
            > first["generation"]
        )
        stream.close()
        served.leave()


def test_browsers_get_compressed_responses_and_programs_do_not(served: Served) -> None:
    browser = {"Accept-Encoding": "gzip", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    response = served.request("GET", "/openapi.json", headers=browser)
    assert response.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(response.body)) == served.get("/openapi.json").json()
    assert (
        "content-encoding"
        not in served.request("GET", "/openapi.json", headers={"Accept-Encoding": "gzip"}).headers
    )
    page = served.request("GET", "/", headers=browser)
    assert gzip.decompress(page.body) == served.get("/").body
