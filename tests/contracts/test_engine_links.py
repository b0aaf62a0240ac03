"""What every engine owes to links: both ends, always as the library is now."""

from __future__ import annotations

from marklight.model import Batch, DocumentId, FileState, LinkType, Name, NameStrength
from marklight.ports import Engine
from tests.contracts.builders import entry, id_of, link, names_of
from tests.contracts.test_engines import commit, put


def targets(engine: Engine, path: str, collection: str = "docs") -> list[DocumentId | None]:
    with engine.snapshot() as snapshot:
        return [each.target for each in snapshot.links.outgoing(id_of(path, collection))]


def test_links_are_known_at_both_ends(engine: Engine) -> None:
    links = (link("b"), link("c", type=LinkType.RELATED), link("b", type=LinkType.EMBEDS))
    put(engine, entry("a.md", "x", links=links), entry("b.md", "y"), entry("c.md", "z"))
    with engine.snapshot() as snapshot:
        found = snapshot.links.outgoing(id_of("a.md"))
        assert [each.link for each in found] == list(links)
        assert [each.target for each in found] == [id_of("b.md"), id_of("c.md"), id_of("b.md")]
        assert snapshot.links.incoming(id_of("b.md")) == [found[0], found[2]]
        assert snapshot.links.incoming(id_of("a.md")) == []
        assert (
            snapshot.links.outgoing(id_of("none.md"))
            == snapshot.links.incoming(id_of("none.md"))
            == []
        )


def test_a_link_resolves_when_its_target_comes_and_opens_when_it_leaves(engine: Engine) -> None:
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


def test_the_first_key_that_is_answered_wins(engine: Engine) -> None:
    put(engine, entry("from.md", "x", links=(link("../b/c", "b/c", "c"),)))
    put(engine, entry("c.md", "y"))
    assert targets(engine, "from.md") == [id_of("c.md")]
    put(engine, entry("b/c.md", "y"))
    assert targets(engine, "from.md") == [id_of("b/c.md")]


def test_a_link_stays_in_its_collection_where_it_can(engine: Engine) -> None:
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


def test_names_can_be_asked_for(engine: Engine) -> None:
    put(engine, entry("a/b.md", "x", names=[Name("über", NameStrength.ALIAS), *names_of("a/b.md")]))
    with engine.snapshot() as snapshot:
        assert snapshot.links.resolve(["nothing", "b"], "docs") == id_of("a/b.md")
        assert snapshot.links.resolve(["über"], "elsewhere") == id_of("a/b.md")
        assert snapshot.links.resolve(["nothing"], "docs") is None
        assert snapshot.links.resolve([], "docs") is None


def test_neighbours_are_known_both_ways_and_never_oneself(engine: Engine) -> None:
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


def test_no_more_neighbours_than_asked_for(engine: Engine) -> None:
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


def linked(engine: Engine) -> int:
    with engine.snapshot() as snapshot:
        return snapshot.links.last_changed()


def test_it_is_known_when_links_or_names_last_changed(engine: Engine) -> None:
    assert linked(engine) == 0
    put(engine, entry("a.md", "x", links=(link("b"), link("c"))), entry("b.md", "x"))
    assert linked(engine) == 1
    # Other words, other vectors, another place of the same links: who links to whom stays.
    put(engine, entry("a.md", "y", title="New", links=(link("c"), link("b"), link("b"))))
    commit(engine, Batch(touched=((id_of("a.md"), FileState(1, 1)),), manifest={"k": "v"}))
    commit(engine, Batch(communities={id_of("a.md"): 1}, removed=(id_of("gone.md"),)))
    assert linked(engine) == 1
    put(engine, entry("a.md", "y", links=(link("b"),)))
    assert linked(engine) == 5
    put(engine, entry("b.md", "x", names=names_of("b.md", "other")))
    assert linked(engine) == 6
    put(engine, entry("c.md", "x"))
    assert linked(engine) == 7
    commit(engine, Batch(removed=(id_of("c.md"),)))
    assert linked(engine) == 8
