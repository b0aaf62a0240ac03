"""Composition: picks the engine and the models, and offers the verbs that every surface has."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from marklight.library import commits, keeping, register, relating, searching, showing
from marklight.library.parts import Parts

__all__ = ["Library"]


class Library(Parts):
    """A folder of documents with its index.

    A verb is a function of the parts, in the module that stands before its name.
    """

    index = keeping.index
    watch = keeping.watch
    status = keeping.status
    ignored = keeping.ignored

    search = searching.search
    commits = commits.commits

    get = showing.get
    outline = showing.outline
    page = showing.page

    links = relating.links
    related = relating.related
    graph = relating.graph

    documents = register.documents
    tags = register.tags

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
