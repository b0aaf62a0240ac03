"""Local-first hybrid search for Markdown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be imported by any version
    # `python -m marklight` prints this line alone; a program gets an error that it can catch.
    raise (SystemExit if sys.argv[:1] == ["-m"] else ImportError)(
        "Marklight needs Python 3.11 or later; this is Python "
        + ".".join(map(str, sys.version_info[:3]))
    )

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from marklight.answer import (
        Answer as Answer,
        Hit as Hit,
        Level as Level,
        LinkedDocument as LinkedDocument,
        SimilarHit as SimilarHit,
        Step as Step,
        Why as Why,
    )
    from marklight.errors import (
        Busy as Busy,
        ConnectionLost as ConnectionLost,
        HistoryError as HistoryError,
        MarklightError as MarklightError,
        Message as Message,
        ModelError as ModelError,
        ModelServerError as ModelServerError,
        NotConfigured as NotConfigured,
        NotFound as NotFound,
        Overloaded as Overloaded,
        ReadOnly as ReadOnly,
        Refused as Refused,
        RepositoryOutside as RepositoryOutside,
        SettingsError as SettingsError,
        Stopped as Stopped,
        StoreError as StoreError,
        UsageError as UsageError,
    )
    from marklight.library import Library as Library
    from marklight.library.transfer import (
        MoveReport as MoveReport,
        copy_index as copy_index,
        export_index as export_index,
        import_index as import_index,
    )
    from marklight.model import (
        Chunk as Chunk,
        Counts as Counts,
        Document as Document,
        DocumentId as DocumentId,
        Failure as Failure,
        Heading as Heading,
        Kind as Kind,
        Link as Link,
        LinkType as LinkType,
        ResolvedLink as ResolvedLink,
        Unit as Unit,
    )
    from marklight.query import Filters as Filters, Mode as Mode, Query as Query
    from marklight.report import (
        DocumentList as DocumentList,
        EdgePosition as EdgePosition,
        Extract as Extract,
        Graph as Graph,
        Links as Links,
        ListedFile as ListedFile,
        Node as Node,
        Outline as Outline,
        Page as Page,
        Related as Related,
        RelatedDocument as RelatedDocument,
        Report as Report,
        Status as Status,
    )
    from marklight.results import (
        CitedAnswer as CitedAnswer,
        Commit as Commit,
        Commits as Commits,
        ListedDocument as ListedDocument,
        ListedTask as ListedTask,
        Listing as Listing,
        MatchingLine as MatchingLine,
        Sentence as Sentence,
        Sort as Sort,
    )

__version__ = "0.1.0"

_EXPORTED = {
    "marklight.answer": "Answer Hit Level LinkedDocument SimilarHit Step Why",
    "marklight.errors": "Busy ConnectionLost HistoryError MarklightError Message ModelError ModelServerError NotConfigured NotFound Overloaded ReadOnly Refused RepositoryOutside SettingsError Stopped StoreError UsageError",
    "marklight.library": "Library",
    "marklight.library.transfer": "MoveReport copy_index export_index import_index",
    "marklight.model": "Chunk Counts Document DocumentId Failure Heading Kind Link LinkType ResolvedLink Unit",
    "marklight.query": "Filters Mode Query",
    "marklight.report": "DocumentList EdgePosition Extract Graph Links ListedFile Node Outline Page Related RelatedDocument Report Status",
    "marklight.results": "CitedAnswer Commit Commits ListedDocument ListedTask Listing MatchingLine Sentence Sort",
}
"""Public names by module; tests compare them with the types that operations return and the errors that they raise."""

__all__ = ["open", *" ".join(_EXPORTED.values()).split()]


def open(
    folder: Path | str | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Library:
    """Open the library of a folder, default: the one around the current folder; or one described by settings only."""
    from collections.abc import Mapping

    from marklight.library import Library

    if isinstance(folder, Mapping):
        folder, settings = None, folder
    return Library(folder, settings)


def __getattr__(name: str) -> Any:
    # Names are imported on first use, so that `import marklight` is fast.
    from importlib import import_module

    for module, names in _EXPORTED.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'marklight' has no attribute {name!r}")
