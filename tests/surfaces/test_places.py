"""Every place that any command prints is accepted by every other, over all surfaces: Python, command line, HTTP, MCP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import Client

import marklight
from marklight.errors import NotFound
from marklight.formatting import document_uri, place_text, unescape
from marklight.model import DocumentId
from marklight.reference import readings
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.mcp.server import make_server
from tests.making import library, write
from tests.surfaces.command_line import run_cli
from tests.surfaces.http.serving import Served, serving
from tests.surfaces.mcp.serving import indexed, text_of

COLLECTIONS = {"docs": "docs", "notes": "notes", "deep": "docs/deep"}
NAMES = (
    *("README.md", "sub/README.md", "docs/README.md", "docs/only.md", "notes/README.md"),
    *("a b.md", "C# notes.md", "x.md", "x.md#y.md", "a:12.md", "a.md:1-4 § b.md", "100%.md"),
    *("per%20cent.md", "[slug].md", "s.md", "[slug]/l.md", "star*.md", "star.md", "qu?.md"),
    *("ünïcode.md", "日本.md", "(b) {c}.md", "'q\".md", "-dash.md", " lead.md", "~tilde.md"),
    *("back\\slash.md", "lit\\x1b.md", "lit\x1b.md", "tab\there.md", "new\nline.md"),
    *("bidi\u202e.md", "marklight:.md", "docs.md", "0123456789abcdef.md"),
)
IDS = [
    *(DocumentId(name, path) for name in ("docs", "notes") for path in NAMES),
    DocumentId("deep", "README.md"),
    DocumentId("deep", "docs/README.md"),
]


def pages() -> dict[str, str]:
    files = {"marklight.toml": "[collections]\n"}
    files["marklight.toml"] += "".join(f"{name} = {at!r}\n" for name, at in COLLECTIONS.items())
    for number, id in enumerate(IDS):
        files[f"{COLLECTIONS[id.collection]}/{id.path}"] = (
            f"# Title {number}\n\nGinger tea number {number}.\n\n## C# part\n\n"
            f"More of unique{number}, see [the notes](README.md#c-part).\n"
        )
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write(tmp_path_factory.mktemp("places") / "all", pages())
    with library(made) as lib:
        lib.index()
    return made


@pytest.fixture(scope="module")
def lib(folder: Path) -> Iterator[marklight.Library]:
    with library(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder) as server:
        yield server


def spellings(folder: Path, id: DocumentId) -> dict[str, str]:
    """Return every way to write the place of a document."""
    name = place_text(id, True)
    return {
        "name": name,
        "lines": place_text(id, True, (1, 3)),
        "line": place_text(id, True, (3,)),
        "anchor": place_text(id, True, fragment="c-part"),
        "heading": place_text(id, True, fragment="C# part"),
        "slash": f"/{name}",
        "absolute": str(folder / COLLECTIONS[id.collection] / id.path),
        "absolute lines": f"{folder / COLLECTIONS[id.collection] / id.path}:1-3",
        "uri": document_uri(id, True),
        "encoded uri": "marklight://docs/" + quote(id.named(True), safe=""),
        "uri with heading": f"{document_uri(id, True)}#c-part",
        "uri with lines": f"{document_uri(id, True)}:1-3",
    }


def cases(folder: Path, spelling: str) -> Iterator[tuple[DocumentId, str]]:
    """Yield documents with one spelling of their places."""
    for id in IDS:
        # An absolute path is not escaped: it is what is printed for the file with the escaped character.
        if not (spelling.startswith("absolute") and id.path == "lit\\x1b.md"):
            yield id, spellings(folder, id)[spelling]


SPELLINGS = list(spellings(Path("/"), IDS[0]))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_python_accepts_every_spelling(lib: marklight.Library, folder: Path, spelling: str) -> None:
    for id, ref in cases(folder, spelling):
        extract = lib.get(ref)
        assert extract.document == id, ref
        assert (extract.lines == (1, 3)) == (spelling.endswith("lines")), ref
        assert lib.outline(ref).document == id
        assert lib.links(path=ref).document == id  # type: ignore[call-arg]
        assert [each for each, _ in lib.resolve(ref).documents] == [id], ref
        filtered = lib.list_documents(path=ref, refresh=False)
        assert [each.document for each in filtered.documents] == [id], ref
        rest = lib.list_documents(exclude=[ref], refresh=False)
        assert id not in {each.document for each in rest.documents}, ref
        assert rest.total == len(IDS) - 1, ref


def test_related_page_and_graph_accept_places(lib: marklight.Library, folder: Path) -> None:
    for id, spelling in zip(IDS, cycle(SPELLINGS), strict=False):
        ref = spellings(folder, id)[spelling]
        assert lib.related(ref).document == id
        assert lib.page(ref).document == id
        assert lib.graph(ref).document == id


def test_a_filter_in_the_query_takes_places(lib: marklight.Library) -> None:
    for id in IDS:
        name = place_text(id, True)
        if not set(name) & set('"\\'):
            found = lib.list_documents(f'path:"{name}"', refresh=False)
            assert [each.document for each in found.documents] == [id], name
            found = lib.list_documents(f'path:"{name}:1-3"', refresh=False)
            assert [each.document for each in found.documents] == [id], name


def printed_by_cli(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> Iterator[tuple[str, DocumentId]]:
    """Yield what commands print, and the document that it is about."""
    everything = ("ginger tea number", "--in", str(folder), "--no-refresh", "--min-confidence", "0")
    skip = ("--set", "search.skip=exact_duplicates,near_duplicates,semantic_duplicates")
    many = ("-n", "100", *skip, "--set", "search.per_document.max_passages=1")
    _, out, _ = run_cli(capsys, "search", *everything, *many, "--json")
    results = json.loads(out)["results"]
    ids = [DocumentId(each["collection"], each["path"]) for each in results]
    assert set(ids) == set(IDS)
    yield from ((each["ref"], id) for each, id in zip(results, ids, strict=True))
    yield from ((each["chunk_id"], id) for each, id in zip(results, ids, strict=True))
    _, out, _ = run_cli(capsys, "search", *everything, *many)
    heads = re.findall(r"^\[\d+\] (.*?:\d+-\d+) § ", out, re.MULTILINE)
    assert len(heads) == len(ids)
    yield from zip(heads, ids, strict=True)
    _, out, _ = run_cli(capsys, "search", *everything, *many, "--format", "jsonl")
    files = [json.loads(line)["file"] for line in out.splitlines()]
    yield from zip(files, ids, strict=True)
    _, out, _ = run_cli(capsys, "list", "--in", str(folder), "--no-refresh")
    names = [line.partition(" § Title")[0] for line in out.splitlines()[:-1]]
    yield from zip(names, sorted(IDS), strict=True)
    _, out, _ = run_cli(capsys, "links", "docs/x.md", "--in", str(folder))
    assert "docs/README.md#c-part" in out
    yield "docs/README.md#c-part", DocumentId("docs", "README.md")


@pytest.mark.parametrize("current", [".", "docs", "notes", "notes/docs", "docs/deep"])
def test_the_command_line_accepts_what_it_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, current: str
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(folder / current)
    step = 1 if current == "." else 3
    commands = cycle(("get", "outline", "related", "links"))
    for (place, id), command in list(zip(printed_by_cli(capsys, folder), commands, strict=False))[
        ::step
    ]:
        if is_shadowed(folder, place, id):
            continue  # printed as JSON, which is the same from every folder
        code, out, err = run_cli(capsys, command, "--json", "--in", str(folder), "--", place)
        # Nothing may be related to a document.
        assert code == 0 or (command == "related" and not err), (command, place, err)
        found = json.loads(out)
        assert (found["collection"], found["path"]) == id, (command, place)


def is_shadowed(folder: Path, place: str, id: DocumentId) -> bool:
    """Return true for a place that begins like the path of another file from the current folder."""
    name = place_text(id, True)
    here = Path.cwd() / name
    own = folder / COLLECTIONS[id.collection] / id.path
    return place.startswith(name) and here.is_file() and here != own


def test_the_command_line_filters_by_what_it_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    monkeypatch.chdir(folder)
    places = [each for each in printed_by_cli(capsys, folder) if len(each[0]) != 16]
    everything = ("list", "--no-refresh", "--json")
    for place, id in places[::7]:
        _, out, err = run_cli(capsys, *everything, f"--path={place}")
        assert [(each["collection"], each["path"]) for each in json.loads(out)["documents"]] == [id]
        _, out, err = run_cli(capsys, *everything, f"--exclude={place}")
        assert json.loads(out)["total"] == len(IDS) - 1, (place, err)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_http_accepts_every_spelling(served: Served, folder: Path, spelling: str) -> None:
    every = list(cases(folder, spelling))
    for id, place in every[SPELLINGS.index(spelling) % 5 :: 5]:
        ref = quote(place, safe="")
        for route in ("documents", "outline", "links"):
            found = served.get(f"/api/{route}/{ref}").json()
            assert (found.get("collection"), found.get("path")) == id, (route, ref, found)
        for parameters in (
            f"path={ref}",
            f"path={quote(json.dumps([place]))}",
        ):
            found = served.get(f"/api/list?{parameters}&refresh=false&limit=1000").json()
            assert [(each["collection"], each["path"]) for each in found["documents"]] == [id], ref


def test_http_accepts_its_own_refs(served: Served) -> None:
    body = {"query": "ginger tea number", "limit": 100, "min_confidence": "0", "refresh": "false"}
    results = served.post("/api/search", body).json()["results"]
    assert results
    for result in results:
        ref = quote(result["ref"], safe="")
        found = served.get(f"/api/related/{ref}").json()
        assert found["ref"] == place_text(DocumentId(result["collection"], result["path"]), True)
        graph = served.get(f"/api/graph?ref={ref}").json()
        assert graph["ref"] == found["ref"] == served.get(f"/api/graph?path={ref}").json()["ref"]


def test_mcp_accepts_every_spelling_and_what_it_prints(folder: Path) -> None:
    async def main() -> None:
        host = LibraryHost(library(folder))
        async with host.open(), Client(make_server(host)) as client:
            await indexed(client)
            for at, spelling in enumerate(SPELLINGS):
                for id, ref in list(cases(folder, spelling))[at % 6 :: 6]:
                    await check(client, ref, id)
            listed = text_of(
                await client.call_tool(
                    "query_documents",
                    {
                        "query": "ginger tea number",
                        "top_n": "100",
                        "max_tokens": 100_000,
                        "min_score": 0,
                    },
                )
            )
            places = re.findall(
                r"^\[\d+\] (.*?:\d+-\d+) § .*\n> (?:# Title|Ginger|More).*", listed, re.M
            )
            assert len(places) > 10
            for place in places:
                found = await client.call_tool("get_document", {"ref": place})
                assert text_of(found).startswith(f"document: {place}"), place

    async def check(client: Client, ref: str, id: DocumentId) -> None:
        name = place_text(id, True)
        found = text_of(await client.call_tool("get_document", {"ref": ref}))
        assert found.startswith(f"document: {name}:"), (ref, found)
        outline = text_of(await client.call_tool("outline", {"path": ref}))
        assert outline.startswith(f"document: {name}\n"), (ref, outline)
        filters: dict[str, Any] = {"query": "ginger tea number", "min_score": 0, "top_n": "5"}
        listed = text_of(await client.call_tool("query_documents", {**filters, "path": [ref]}))
        assert set(re.findall(r"^\[\d+\] (.*?):\d+-\d+ § ", listed, re.M)) == {name}, (ref, listed)
        rest = await client.call_tool(
            "query_documents", {**filters, "path": json.dumps([ref]), "excluded_files": ref}
        )
        assert not re.findall(r"^\[\d+\] ", text_of(rest), re.M), ref

    anyio.run(main)


AMBIGUOUS = ("README.md", "x.md", "README.md:1-3", "README.md#c-part", "x", "a b", "only.md")


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_name_lists_its_candidates(
    lib: marklight.Library, served: Served, name: str
) -> None:
    with pytest.raises(NotFound) as error:
        lib.get(name)
    listed = error.value.hint.removeprefix("Give the path of one: ").split(", ")
    assert len(listed) > 1
    for place in listed:
        assert lib.get(place).document in IDS
    for route in ("documents", "outline", "related", "links"):
        response = served.get(f"/api/{route}/{quote(name, safe='')}")
        assert response.status == 404
        assert response.json()["error"]["hint"] == error.value.hint
    with pytest.raises(NotFound, match="Several documents"):
        lib.related(name)


def test_a_collection_named_like_a_folder_of_another_is_not_mixed_up(
    lib: marklight.Library,
) -> None:
    found = lib.list_documents(path="docs/**", refresh=False)
    assert {each.document.collection for each in found.documents} == {"docs"}
    found = lib.list_documents(path="docs/**", collection="notes", refresh=False)
    assert {each.document for each in found.documents} == {
        DocumentId("notes", "docs/README.md"),
        DocumentId("notes", "docs/only.md"),
    }
    found = lib.list_documents(path="notes/docs/*.md", refresh=False)
    assert {each.document.path for each in found.documents} == {"docs/README.md", "docs/only.md"}
    found = lib.list_documents(path="**/only.md", refresh=False)
    assert found.total == 2


def test_absolute_folders_and_globs_are_filters(lib: marklight.Library, folder: Path) -> None:
    below = lib.list_documents(path=f"{folder}/docs/deep", refresh=False)
    assert {each.document.collection for each in below.documents} == {"deep"}
    both = lib.list_documents(path=f"{folder}/docs/**", refresh=False)
    assert {each.document.collection for each in both.documents} == {"docs", "deep"}
    some = lib.list_documents(path=str(folder / "notes/docs/*.md"), refresh=False)
    assert [each.document.path for each in some.documents] == ["docs/README.md", "docs/only.md"]
    every = lib.list_documents(path=str(folder), refresh=False)
    assert every.total == len(IDS)


def test_a_name_of_the_current_folder_and_of_the_library_is_ambiguous(
    folder: Path, lib: marklight.Library
) -> None:
    near = folder / "notes"
    # Printed for docs/README.md; in this folder also the path of notes/docs/README.md.
    with pytest.raises(NotFound, match=r"/docs/README\.md, notes/docs/README\.md"):
        lib.get("docs/README.md", near=near)
    assert lib.get("/docs/README.md", near=near).document == ("docs", "README.md")
    assert lib.get("./docs/README.md", near=near).document == ("notes", "docs/README.md")
    assert lib.get("../docs/README.md", near=near).document == ("docs", "README.md")
    assert lib.get("README.md", near=near).document == ("notes", "README.md")


NAME = st.text(
    st.sampled_from("ab #:%[]*?\\x1bnut09-§./éü\x1b\n\t\u202e\u200b(){}'\"~^"),
    min_size=1,
    max_size=12,
).map(lambda name: f"{name.replace('/', '_')}.md")


@given(NAME, st.booleans())
@example("lit\\x1b.md", True)
@example("\\\x1b.md", False)
@example("a:1-4 §.md", False)
def test_a_printed_place_is_parsed_to_its_name(name: str, several: bool) -> None:
    id = DocumentId("docs", name)
    for place, lines, fragment in (
        (place_text(id, several), None, ""),
        (place_text(id, several, (3, 7)), (3, 7), ""),
        (place_text(id, several, (3,)), (3, 3), ""),
        (place_text(id, several, fragment="a-b"), None, "a-b"),
        (f"{document_uri(id, several)}:3-7", (3, 7), ""),
        (f"{document_uri(id, several)}#a-b", None, "a-b"),
    ):
        assert "\n" not in place
        assert any(
            id.named(several) == each.names[0] and (each.lines, each.fragment) == (lines, fragment)
            for each in readings(place)
        )
    assert unescape(place_text(id, several)) == id.named(several)


@settings(max_examples=15, deadline=None)
@given(st.lists(NAME, min_size=2, max_size=5, unique_by=str.casefold), st.data())
def test_random_names_in_two_collections_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    names = [name for name in names if not name.startswith(".") and not name.endswith("~")]
    at = tmp_path_factory.mktemp("random")
    write(at, {f"{own}/{name}": f"# {own}\n\ntea\n" for own in "ab" for name in names})
    with library(at, collections={"a": "a", "b": "b"}) as lib:
        lib.index()
        listed = [each.document for each in lib.list_documents(refresh=False).documents]
        for id in listed:
            for ref in (
                place_text(id, True),
                place_text(id, True, (1, 3)),
                place_text(id, True, fragment=id.collection),
                document_uri(id, True),
                str(at / id.collection / id.path),
            ):
                assert lib.get(ref).document == id, ref
                assert [
                    each.document for each in lib.list_documents(path=ref, refresh=False).documents
                ] == [id]
            if len(listed) > 1 and listed.count(id) == 1:
                with pytest.raises(NotFound, match="Several documents"):
                    lib.get(id.path)
