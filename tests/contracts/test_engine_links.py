"""Contract of the link reader: links resolved in both directions, neighbours and communities."""

from __future__ import annotations

from marklight.model import Batch, DocumentId, FileState, LinkType, Name, NameStrength
from marklight.ports import Engine
from tests.contracts.builders import commit, entry, id_of, link, names_of, put


def targets(engine: Engine, path: str, collection: str = "docs") -> list[DocumentId | None]:
    with engine.snapshot() as snapshot:
        return [each.target for each in snapshot.links.outgoing(id_of(path, collection))]


def test_links_are_returned_for_both_ends(engine: Engine) -> None:
    links = (link("b"), link("c", type=LinkType.RELATED), link("b", type=LinkType.EMBEDS))
    put(engine, entry("a.md", "x", links=links), entry("b.md", "y"), entry("c.md", "z"))
    with engine.snapshot() as snapshot:
        outgoing = snapshot.links.outgoing(id_of("a.md"))
        assert [each.link for each in outgoing] == list(links)
        assert [each.target for each in outgoing] == [id_of("b.md"), id_of("c.md"), id_of("b.md")]
        assert snapshot.links.incoming(id_of("b.md")) == [outgoing[0], outgoing[2]]
        assert snapshot.links.incoming(id_of("a.md")) == []
        assert (
            snapshot.links.outgoing(id_of("none.md"))
            == snapshot.links.incoming(id_of("none.md"))
            == []
        )


def test_a_link_resolves_while_its_target_exists(engine: Engine) -> None:
    put(engine, entry("a.md", "x", links=(link("later"),)))
    with engine.snapshot() as snapshot:
        assert [each.link.target for each in snapshot.links.unresolved()] == ["later"]
    put(engine, entry("deep/later.md", "y"))
    assert targets(engine, "a.md") == [id_of("deep/later.md")]
    with engine.snapshot() as snapshot:
        assert snapshot.links.unresolved() == []
        assert len(snapshot.links.incoming(id_of("deep/later.md"))) == 1
    commit(engine, Batch(removed=(id_of("deep/later.md"),)))
    assert targets(engine, "a.md") == [None]


def test_path_beats_shorter_path_beats_alias(engine: Engine) -> None:
    put(
        engine,
        entry("from.md", "x", links=(link("note"),)),
        entry("x.md", "y", names=names_of("x.md", "Note")),
    )
    assert targets(engine, "from.md") == [id_of("x.md")]
    put(engine, entry("very/deep/note.md", "y"))
    assert targets(engine, "from.md") == [id_of("very/deep/note.md")]
    put(engine, entry("deep/note.md", "y"), entry("peed/note.md", "y"))
    assert targets(engine, "from.md") == [id_of("deep/note.md")]
    put(engine, entry("note.md", "y"))
    assert targets(engine, "from.md") == [id_of("note.md")]
    with engine.snapshot() as snapshot:
        assert snapshot.links.incoming(id_of("deep/note.md")) == []
        assert len(snapshot.links.incoming(id_of("note.md"))) == 1


def test_the_first_key_with_a_document_wins(engine: Engine) -> None:
    put(engine, entry("from.md", "x", links=(link("../b/c", "b/c", "c"),)))
    put(engine, entry("c.md", "y"))
    assert targets(engine, "from.md") == [id_of("c.md")]
    put(engine, entry("b/c.md", "y"))
    assert targets(engine, "from.md") == [id_of("b/c.md")]


def test_a_link_prefers_its_own_collection(engine: Engine) -> None:
    put(
        engine,
        entry("from.md", "x", links=(link("note"), link("only")), collection="one"),
        entry("note.md", "y", collection="two"),
        entry("only.md", "y", collection="two"),
        entry("deep/note.md", "y", collection="one"),
    )
    assert targets(engine, "from.md", "one") == [
        DocumentId("one", "deep/note.md"),
        DocumentId("two", "only.md"),
    ]


def test_a_link_prefers_its_own_folder(engine: Engine) -> None:
    put(
        engine,
        entry("from.md", "x", links=(link("dup"),)),
        entry("one/from.md", "x", links=(link("dup"), link("deep/dup"))),
        entry("two/from.md", "x", links=(link("dup"),)),
        entry("dup.md", "y"),
        entry("one/dup.md", "y"),
        entry("one/deep/dup.md", "y"),
        entry("deep/dup.md", "y"),
        entry("two/other.md", "y", names=[Name("dup", NameStrength.ALIAS)]),
    )
    root, one, deep = map(id_of, ("dup.md", "one/dup.md", "one/deep/dup.md"))
    assert targets(engine, "from.md") == [root]
    assert targets(engine, "one/from.md") == [one, deep]
    assert targets(engine, "two/from.md") == [root]
    with engine.snapshot() as snapshot:
        assert list(snapshot.links.edges()) == [
            (id_of("from.md"), root),
            (id_of("one/from.md"), deep),
            (id_of("one/from.md"), one),
            (id_of("two/from.md"), root),
        ]


def test_a_name_means_all_documents_that_have_it_in_its_strongest_form(engine: Engine) -> None:
    put(
        engine,
        entry("a/b.md", "x", names=[Name("über", NameStrength.ALIAS), *names_of("a/b.md")]),
        entry("c/b.md", "y", names=[*names_of("c/b.md")]),
        entry("d.md", "z", names=[Name("b", NameStrength.ALIAS)]),
    )
    with engine.snapshot() as snapshot:
        assert snapshot.links.named("b") == [id_of("a/b.md"), id_of("c/b.md")]
        assert snapshot.links.named("a/b") == [id_of("a/b.md")]
        assert snapshot.links.named("über") == [id_of("a/b.md")]
        assert snapshot.links.named("nothing") == []


def test_neighbours_are_in_both_directions_without_the_document_itself(engine: Engine) -> None:
    put(
        engine,
        entry("a.md", "x", links=(link("b"), link("b"), link("a"), link("nowhere"))),
        entry("b.md", "y", links=(link("c"),)),
        entry("c.md", "z", links=(link("a"),)),
        entry("alone.md", "w", links=(link("alone"),)),
    )
    a, b, c, alone = (id_of(f"{name}.md") for name in ("a", "b", "c", "alone"))
    with engine.snapshot() as snapshot:
        assert snapshot.links.neighbours([a, alone, id_of("none.md")], 9) == {
            a: [b, c],
            alone: [],
            id_of("none.md"): [],
        }
        assert list(snapshot.links.edges()) == [(a, b), (b, c), (c, a)]
        assert snapshot.links.orphans() == [alone]
        # a: of its four links two lead to b, one to itself, one nowhere; c's leads to it.
        assert snapshot.links.degrees([a, b, alone], 9) == {a: 1 + 1, b: 1 + 1, alone: 0}
        assert snapshot.links.degrees([a, b], 1) == {a: 1 + 1, b: 1 + 1}
        assert snapshot.links.neighbours([], 9) == {}
        assert snapshot.links.degrees([], 9) == {}
        assert snapshot.links.neighbours([a], 0) == {a: []}


def test_neighbours_and_degrees_are_limited(engine: Engine) -> None:
    put(
        engine,
        entry("hub.md", "x"),
        *(entry(f"{n}.md", "y", links=(link("hub"),)) for n in range(9)),
    )
    with engine.snapshot() as snapshot:
        (near,) = snapshot.links.neighbours([id_of("hub.md")], 4).values()
        assert len(set(near)) == 4
        assert snapshot.links.degrees([id_of("hub.md")], 4) == {id_of("hub.md"): 4}
        assert len(snapshot.links.incoming(id_of("hub.md"), 4)) == 4
        assert [each.source.path for each in snapshot.links.incoming(id_of("hub.md"), 2)] == [
            "0.md",
            "1.md",
        ]


def last_changed(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.links.last_changed()


def test_the_generation_of_the_last_change_of_links_or_names_is_stored(engine: Engine) -> None:
    assert last_changed(engine) == 0
    put(engine, entry("a.md", "x", links=(link("b"), link("c"))), entry("b.md", "x"))
    assert last_changed(engine) == 1
    # Other words, other vectors, another place of the same links: who links to whom stays.
    put(engine, entry("a.md", "y", title="New", links=(link("c"), link("b"), link("b"))))
    commit(engine, Batch(touched=((id_of("a.md"), FileState(1, 1)),), manifest={"k": "v"}))
    commit(engine, Batch(communities={id_of("a.md"): 1}, removed=(id_of("gone.md"),)))
    assert last_changed(engine) == 1
    put(engine, entry("a.md", "y", links=(link("b"),)))
    assert last_changed(engine) == 5
    put(engine, entry("b.md", "x", names=names_of("b.md", "other")))
    assert last_changed(engine) == 6
    put(engine, entry("c.md", "x"))
    assert last_changed(engine) == 7
    commit(engine, Batch(removed=(id_of("c.md"),)))
    assert last_changed(engine) == 8


def test_new_communities_replace_the_old_ones(engine: Engine) -> None:
    a, b, c = (id_of(f"{name}.md") for name in "abc")
    put(engine, *(entry(id.path, "x") for id in (a, b, c)))
    commit(engine, Batch(communities={a: 1, b: 0, id_of("gone.md"): 4}))
    with engine.snapshot() as before:
        assert before.links.communities([c, b, a, id_of("gone.md")]) == {a: 1, b: 0}
        commit(engine, Batch(communities={c: 2}))
        assert before.links.communities([a, b, c]) == {a: 1, b: 0}
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b, c]) == {c: 2}
    commit(engine, Batch(communities={}))
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b, c]) == {}


def test_a_document_keeps_its_community_until_it_is_removed(engine: Engine) -> None:
    a, b = id_of("a.md"), id_of("b.md")
    put(engine, entry("a.md", "x"), entry("b.md", "x"))
    commit(engine, Batch(communities={a: 1, b: 2}))
    commit(engine, Batch(entries=(entry("a.md", "other"),), removed=(b,)))
    put(engine, entry("b.md", "x"))
    with engine.snapshot() as snapshot:
        assert snapshot.links.communities([a, b]) == {a: 1}
