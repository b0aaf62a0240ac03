"""Composition: picks the engine and the models, and offers the verbs that every surface has."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from marklight.answer import Answer, Mode, Query
from marklight.commits import Commits
from marklight.errors import HistoryError, NotFound, Unanswered
from marklight.ingest.discover import Discover
from marklight.ingest.pipeline import Ingest
from marklight.library import register
from marklight.library.asking import Day, Several, ask, level_of, whole
from marklight.library.choice import embedded_with, model_for
from marklight.library.commits import ask_commits, keep_commits, told_status
from marklight.library.locate import scope_of, standing
from marklight.library.parts import MANY, Parts, in_turn
from marklight.library.upkeep import MOMENT_SECONDS, Freshness, Upkeep
from marklight.model import DocumentId
from marklight.ports import Progress, Reader, Tools, in_haste, nobody_stops, silent
from marklight.report import Extract, Graph, Links, Outline, Page, Register, Related, Report
from marklight.search import picture, present, reference, relations, widen
from marklight.search.likelihood import is_measured
from marklight.search.pipeline import GONE
from marklight.search.reference import Find

__all__ = ["Library"]

FEW = 32
"""Passages without a vector that a search embeds by itself though another thread would do it too."""
WITH_MODEL = (Mode.HYBRID, Mode.SEMANTIC)
"""Modes that need a model; the others answer without one."""

About = TypeVar("About", bound=Extract | Outline | Page | Links | Related)
"""What is told about one document."""


class Library(Parts):
    """A folder of documents with its index."""

    # Verbs

    def index(
        self, *, rebuild: bool = False, history: bool | None = None, progress: Progress = silent
    ) -> Report:
        """Bring the index up to date: text first, searchable at once, then vectors.

        Commits too with `history`, or where they were asked for before.
        """
        began = time.perf_counter()
        before = self.ingest.counts()
        report = self.keeping(self.ingest).run(progress, rebuild=rebuild)
        after = self.ingest.counts()
        commits = keep_commits(self, history, progress, rebuild=rebuild)
        return replace(
            report,
            history=commits,
            index=after,
            newly_embedded=max(0, after.embedded - before.embedded),
            notices=(*self._notices(), *self.sent_to(embedding=True), *self.engine.news()),
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def search(
        self,
        text: str,
        *,
        limit: int = 5,
        mode: str = "hybrid",
        min_confidence: float | None = None,
        path: Several = (),
        tag: Several = (),
        where: Mapping[str, str] | Several = (),
        after: Day = None,
        before: Day = None,
        exclude: Several = (),
        collection: Several = (),
        max_tokens: int | None = None,
        rerank: bool | None = None,
        parents: bool = False,
        context: int = 0,
        expand_context: bool = False,
        hypothesis: str | None = None,
        with_history: bool = False,
        explain: bool = False,
        refresh: bool = True,
        settings: Mapping[str, Any] | None = None,
        near: Path | None = None,
        part: Path | None = None,
        assignments: Sequence[str] = (),
        progress: Progress = silent,
        going_on: Callable[[], None] = nobody_stops,
    ) -> Answer:
        """Find passages; the index is compared with the disk first unless told not to.

        `near` is the folder that the asker stands in, `part` a folder that alone is asked, and
        `assignments` are settings as a command line writes them.
        """
        began = time.perf_counter()
        query = ask(
            text,
            limit=limit,
            mode=mode,
            min_confidence=min_confidence,
            max_tokens=max_tokens,
            rerank=rerank,
            parents=parents,
            context=context,
            expand_context=expand_context,
            hypothesis=hypothesis,
            path=path,
            tag=tag,
            where=where,
            after=after,
            before=before,
            exclude=exclude,
            collection=collection,
            known_collections=self.collections,
            here=self._standing(near),
            within=scope_of(self.collections, part) if part else self.scope,
        )
        pipeline = self.pipeline_with(settings or {}, assignments)
        # Before any work is done, so that a missing one is told at once.
        reranker = self.reranker_for(query, pipeline)
        ingest = self.ingest if query.mode in WITH_MODEL else self.reading
        fresh = self._fresh(query, progress) if refresh else Freshness()

        def answer() -> tuple[Answer, list[DocumentId]]:
            with self.at_work() as alone, self.engine.snapshot() as reader:
                counts = reader.counts(self.model_problem()[0])
                embedder, said = model_for(query, reader, ingest.embedder, self.model_named)
                tools = Tools(
                    reader,
                    in_haste(embedder, self.settings["model.query_seconds"]),
                    reranker,
                    exists=self.files.has,
                    now=time.time(),
                    say=said.append,
                    together=self.together if alone and counts.chunks >= MANY else in_turn,
                    going_on=going_on,
                )
                try:
                    found = pipeline(query, tools)
                except Unanswered as error:
                    if query.mode is Mode.SEMANTIC:
                        raise
                    said.append(f"answered by words alone: {error}")
                    found = pipeline(query, replace(tools, embedder=None))
                documents = {hit.chunk.document for hit in found.hits}
                if counts.documents == 0:
                    said = [*said, f"there are no documents in {self.place.folder}"]
                found = replace(
                    found,
                    index=replace(counts, unread=fresh.unread),
                    modified=reader.modified(documents),
                    levels=widen.levels((hit.chunk for hit in found.hits), widen.Leaves(reader)),
                    notices=said,
                )
                return found, self.files.changed(reader.indexed(documents))

        found, stale = answer()
        if stale and refresh and self.keeping(self.reading).reread(stale, progress):
            found, stale = answer()
        found = self._without(found, stale) if stale else found
        sent = self.sent_to(embedding=ingest.embedder is not None, reranking=reranker is not None)
        found = replace(
            found,
            notices=[
                *self._notices(),
                *(one for one in fresh.notices if _reason(one) not in map(_reason, found.notices)),
                *found.notices,
                *sent,
                *self.engine.news(),
            ],
            explain=explain,
            several_collections=len(self.collections) > 1,
        )
        found = present.within_budget(found)
        if with_history:
            found = self._with_commits(
                found,
                text,
                limit=limit,
                mode=mode,
                after=after,
                before=before,
                min_confidence=min_confidence,
                max_tokens=max_tokens,
                rerank=rerank,
                explain=explain,
                refresh=refresh,
                settings=settings,
                assignments=assignments,
                progress=progress,
                going_on=going_on,
            )
        return replace(found, took_ms=(time.perf_counter() - began) * 1000)

    def commits(
        self,
        text: str,
        *,
        limit: int = 5,
        files: Several = (),
        author: Several = (),
        after: Day = None,
        before: Day = None,
        mode: str = "hybrid",
        min_confidence: float | None = None,
        max_tokens: int | None = None,
        rerank: bool | None = None,
        explain: bool = False,
        refresh: bool = True,
        settings: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
        progress: Progress = silent,
        going_on: Callable[[], None] = nobody_stops,
    ) -> Commits:
        """Find commits of the repositories that hold the collections; new ones are read first.

        `files` are globs of what a commit changed, `author` a part of a name or an address.
        """
        return ask_commits(
            self,
            text,
            limit=limit,
            files=files,
            author=author,
            after=after,
            before=before,
            mode=mode,
            min_confidence=min_confidence,
            max_tokens=max_tokens,
            rerank=rerank,
            explain=explain,
            refresh=refresh,
            settings=settings,
            assignments=assignments,
            progress=progress,
            going_on=going_on,
        )

    def get(
        self,
        ref: str,
        *,
        level: str | None = None,
        context: int | None = None,
        collection: str | None = None,
        near: Path | None = None,
        progress: Progress = silent,
    ) -> Extract:
        """A document or a part of it: path, path#heading, path:10-40 or a passage's id.

        A path is one below its collection, or one from the folder `near`. With a level, such as
        `section`, that much around the passage that the reference names. Where a collection is
        named a path is exactly one of its own, and no name of a document will do.
        """
        wanted, count = level_of(level, context)

        def read(reader: Reader, find: Find) -> Extract:
            if collection is not None:
                find = self.files.exactly(reader, collection)
            extract = reference.follow(ref, reader, find)
            self.files.demand(extract.document)
            return reference.widened(extract, wanted, reader, count) if wanted else extract

        return self._asked(read, near, progress)

    def outline(
        self, path: str, *, near: Path | None = None, progress: Progress = silent
    ) -> Outline:
        """A document's headings."""

        def read(reader: Reader, find: Find) -> Outline:
            document = reference.demand(path, reader, find)
            return Outline(document.id, tuple(document.outline))

        return self._asked(read, near, progress)

    def page(
        self, path: str, *, line: int = 1, near: Path | None = None, progress: Progress = silent
    ) -> Page:
        """A document as safe HTML; of a very long one the part around a line."""
        # The parser is heavy, and nothing else shows HTML.
        from marklight.ingest.render import render

        def read(reader: Reader, find: Find) -> Page:
            document = reference.demand(path, reader, find)
            links = reader.links_from(document.id)
            leads = {each.link.keys: self._called(each.target) for each in links if each.target}
            called, parsers = self._called(document.id), self.reading.discover.parsers
            rendered = render(document, called, leads.get, line, parsers)
            return Page(
                document=document.id,
                title=document.title,
                html=rendered.html,
                lines=rendered.lines,
                of_lines=document.text.count("\n") + 1,
                headings=document.outline,
                blocks=document.blocks,
                tags=document.tags,
                date=document.date,
            )

        return self._asked(read, near, progress)

    def links(
        self,
        path: str | None = None,
        *,
        limit: int = 100,
        near: Path | None = None,
        progress: Progress = silent,
    ) -> Links:
        """Links to and from a document; without one, what in the library leads nowhere or stands alone."""
        whole("the limit", limit, 1, relations.MOST_COUNTED)

        def read(reader: Reader, find: Find) -> Links:
            if path is None:
                return relations.loose_ends(reader, limit, self.files.has)
            id = reference.demand(path, reader, find).id
            return relations.links(id, reader, limit, self.files.has)

        return self._asked(read, near, progress)

    def related(
        self, path: str, *, limit: int = 10, near: Path | None = None, progress: Progress = silent
    ) -> Related:
        """Documents that belong to this one: by links, shared tags and meaning, each with its reasons."""
        whole("the limit", limit, 1, 100)

        def read(reader: Reader, find: Find) -> Related:
            document = reference.demand(path, reader, find)
            wanted = self.settings["model.name"] != "none"
            model = embedded_with(reader, lambda: self.model_problem()[0]) if wanted else ""
            return relations.related(document, reader, model, limit, self.files.has)

        return self._asked(read, near, progress)

    def documents(self, *, like: str = "", after: str = "", limit: int = 100) -> Register:
        """The documents that are indexed, in order; `after` is what the part before called `next`.

        With `like`, those whose path holds this text, whoever begins with it first.
        """
        with self.engine.snapshot() as reader:
            return register.listed(reader.files(), like, after, whole("the limit", limit, 1, 1000))

    def tags(self) -> dict[str, int]:
        """Every tag with how many documents have it, or one nested below it."""
        with self.engine.snapshot() as reader:
            return dict(sorted(reader.tags().items()))

    def graph(
        self,
        path: str | None = None,
        *,
        depth: int = 1,
        limit: int = 100,
        near: Path | None = None,
        progress: Progress = silent,
    ) -> Graph:
        """Documents and the links between them: around one, or without one the best linked of all."""
        whole("the depth", depth, 1, picture.DEEPEST)
        whole("the limit", limit, 1, picture.MOST_NODES)
        notices = self._refresh_known(progress)
        with self.engine.snapshot() as reader:
            if path is None:
                found = picture.best_linked(reader, limit, self.files.has)
            else:
                id = reference.demand(path, reader, self.files.near(reader, near)).id
                found = picture.around(id, reader, depth, limit, self.files.has)
        return replace(found, notices=tuple(notices))

    def watch(self) -> Generator[Report, None, None]:
        """Follow the files: a report for each batch of changes, until nobody asks for the next.

        What goes wrong meanwhile is a report with notices alone.
        """
        from marklight.library.following import followed

        return followed(self)

    def ignored(self, path: Path | str) -> str:
        """Why a file is left out of the index; empty when it is not."""
        discover = self.settings.build(Discover, "files")
        return discover.why_ignored(Path(path), self.collections) or ""

    def status(self) -> dict[str, Any]:
        """What is indexed, what is still to do, what failed."""
        fingerprint, problem = self.model_problem()
        with self.engine.snapshot() as reader:
            counts, failures = reader.counts(fingerprint), reader.failures()
            remarks = reader.remarks()
            documents = Counter(id.collection for id in reader.files())
        return {
            "documents": counts.documents,
            "chunks": counts.chunks,
            "embedded": counts.embedded,
            "pending": counts.pending,
            "failed": [
                {
                    "path": one.document.path,
                    "collection": one.document.collection,
                    "reason": one.reason,
                }
                for one in failures
            ],
            "remarks": [
                {"path": id.path, "collection": id.collection, "remark": said}
                for id, said in remarks
            ],
            "generation": counts.generation,
            "model": self.settings["model.name"],
            **({"model_address": self.server.address} if self.server else {}),
            **({"model_problem": problem} if problem else {}),
            "calibrated": is_measured("hybrid", fingerprint),
            "reranker": self.settings["reranker.name"] or "none",
            **({"reranker_address": self.reranker_server.address} if self.reranker_server else {}),
            **({"reranker_problem": unfit} if (unfit := self.reranker_problem()) else {}),
            "engine": self.engine.describe(),
            "sizes": dict(self.engine.sizes()),
            "unused_vectors": self.engine.waste(),
            **told_status(self, fingerprint),
            "collections": {
                each: {"path": str(folder), "documents": documents[each]}
                for each, folder in self.collections.items()
            },
        }

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Inside

    def _asked(
        self, read: Callable[[Reader, Find], About], near: Path | None, progress: Progress
    ) -> About:
        """What is asked about one document, of the file as it is now, though no look came to it yet."""
        notices = self._refresh_known(progress)
        missed: list[DocumentId] = []

        def ask() -> tuple[About, list[DocumentId]]:
            with self.engine.snapshot() as reader:
                found = read(reader, self.files.near(reader, near, missed.append))
                asked = [found.document] if found.document else []
                return found, self.files.changed(reader.indexed(asked))

        def reread(some: list[DocumentId]) -> bool:
            return bool(some) and self.keeping(self.reading).reread(some, progress)

        try:
            found, stale = ask()
        except NotFound:
            if not reread(missed):
                raise
            found, stale = ask()
        if reread(stale):
            found, stale = ask()
        told = (*notices, *([_as_before(1)] if stale else []), *found.notices)
        return replace(found, notices=told)

    def _without(self, answer: Answer, stale: Iterable[DocumentId]) -> Answer:
        """An answer without what is gone, that says what was not read since it changed."""
        gone = {id for id in stale if not self.files.has(id)}
        hits = tuple(hit for hit in answer.hits if hit.chunk.document not in gone)
        changed = len({hit.chunk.document for hit in hits}.intersection(stale))
        return replace(
            answer,
            hits=hits,
            abstained=answer.abstained if hits else GONE,
            notices=[*answer.notices, *([_as_before(changed)] if changed else [])],
        )

    def _with_commits(self, answer: Answer, text: str, **asked: Any) -> Answer:
        """What the history says too; that there is none is no reason to hide the documents."""
        try:
            return replace(answer, commits=self.commits(text, **asked))
        except (HistoryError, NotFound) as error:
            return replace(answer, notices=(*answer.notices, str(error)))

    def _refresh_known(self, progress: Progress) -> list[str]:
        """A look at the disk for a library that is there; only a search or a run makes a new one."""
        if self.following:
            self.following.await_text()
        with self.engine.snapshot() as reader:
            if reader.generation == 0:
                raise NotFound(
                    f"nothing is indexed in {self.place.folder} yet",
                    "Name the library's folder with --in, or run `marklight index`",
                )
        return list(self._fresh(None, progress).notices)

    def _standing(self, near: Path | None) -> str:
        return standing(self.collections, near or Path.cwd()) if len(self.collections) > 1 else ""

    def _called(self, id: DocumentId) -> str:
        """What a document is asked for by: its collection stands before it where there are several."""
        return f"{id.collection}/{id.path}" if len(self.collections) > 1 else id.path

    def _fresh(self, query: Query | None, progress: Progress) -> Freshness:
        """A look at the disk, one for all who ask at once; then vectors for a while.

        Many vectors are left to whoever follows the disk, and so is a library that is not read yet.
        """
        keep, following = self.keeping(self.reading), self.following
        new = not self.reading.counts().documents
        if following and new:
            following.await_text()
            new = not self.reading.counts().documents
        if following and new and not following.watching:
            return Freshness(tuple(filter(None, (str(following.at or following.problem),))))
        seconds = self.limits.first_search_seconds if new else self.limits.search_seconds
        until = time.monotonic() + seconds

        def look() -> Freshness:
            fresh = keep.refresh(progress, until, new=new)
            if following:
                following.told(fresh.report)
            return fresh

        patience = self.limits.wait_seconds if new else MOMENT_SECONDS
        found = self.looks.share(look, patience)
        if found is None:
            at = following.at if following else None
            return Freshness(
                (str(at or "this library is being indexed; answering from what is there"),)
            )
        if query is None or query.mode not in WITH_MODEL:
            return found
        if following and self.ingest.counts().pending > FEW:
            return found  # whoever follows the disk makes them
        if new:  # reading has taken its own time
            until = time.monotonic() + seconds
        said = self.keeping(self.ingest).embed_for(query, progress, until)
        more = (said,) if said and said not in found.notices else ()
        return found._replace(notices=(*found.notices, *more))

    def keeping(self, ingest: Ingest) -> Upkeep:
        """Who keeps the index true, with or without vectors."""
        followed = self.following is not None and self.following.watching
        return Upkeep(ingest, self.limits, self.bookmark, self.looks, self.embedding, followed)

    def _notices(self) -> tuple[str, ...]:
        return (*((self.notice,) if self.notice else ()), *self.files.missing())


def _as_before(count: int) -> str:
    files = "a file is" if count == 1 else f"{count} files are"
    return f"{files} shown as before the last change; without --no-refresh, a search reads what changed"


def _reason(notice: str) -> str:
    """What lies behind what could not be done: twice the same is said once."""
    return notice.partition(": ")[2] or notice
