"""Settings file of a folder: allow-list of the settings that are honoured without the user's trust.

A folder may come from a stranger: a clone, an archive, a shared disk. Its file may change how its own documents are
ranked and split, and exclude some of them. It may not set paths outside, engines, servers, models, keys or a daemon,
include files that are excluded by default, or allow unbounded time and memory. A key that is not listed is ignored.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from marklight import settings
from marklight.errors import Message
from marklight.ingest.recipe import OFF
from marklight.settings import Ignored, Layer, Schema, Settings, typed_layer
from marklight.trust import FolderFile, is_trusted, read_folder_file, record_of

NOT_ALLOWED = "requires `marklight settings --trust`"
MAX_NAMED = 20
"""Maximum number of keys in a notice; `marklight settings` lists the others."""
DOCUMENTS = frozenset(
    f".{extension}"
    for extension in "md markdown mdown mkd mdx rmd qmd txt text rst adoc asciidoc org textile wiki tex".split()
)
"""File extensions of documents; other files, such as `.env` and `.json`, may contain secrets."""
_PLAIN_NAME = re.compile(r"[\w.-]{1,40}", re.ASCII)
"""Names that a notice repeats; a longer text could look like a message of this program."""


class Check(NamedTuple):
    """A test that a value in a folder's file must pass."""

    limit: str
    """Description of the values that pass; empty for all that the setting itself accepts."""
    passes: Callable[[str, Any, Path], bool]
    """Takes the name of an entry (empty for a plain value), its value and the folder."""


def _within(least: float, most: float) -> Check:
    """Return a check for numbers; those out of range would cost too much time or memory."""
    return Check(f"{least} to {most}", lambda _, value, __: least <= value <= most)


def _is_inside(entry: str, value: str, folder: Path) -> bool:  # noqa: ARG001 - the shape of a check
    """Return true for a folder below this one, after symbolic links are resolved, unless it is hidden like `.ssh`."""
    try:
        path = Path(os.path.realpath(folder / Path(value).expanduser()))
        below = path.relative_to(os.path.realpath(folder))
    except (ValueError, RuntimeError, OSError):
        return False
    return not any(part.startswith(".") for part in below.parts)


def _reads_documents(entry: str, value: str, folder: Path) -> bool:  # noqa: ARG001 - the shape of a check
    """Return true for a pattern that excludes files, or that matches documents only."""
    return value in OFF or PurePosixPath(entry).suffix.lower() in DOCUMENTS


_any = Check("", lambda *_: True)
_inside = Check("folders inside this one that are not hidden", _is_inside)
_documents = Check("patterns for text documents, such as *.rst; or `none`", _reads_documents)

ALLOWED: Mapping[str, Check] = {
    "collections": _inside,
    "files.parsers": _documents,
    "files.include": _any,
    "files.exclude": _any,
    # Very short passages multiply their number; a long one takes memory in every answer.
    "chunk.min_chars": _within(0, 5_000),
    "chunk.max_chars": _within(200, 20_000),
    # A smaller number would make a paragraph that two documents quote hard to find.
    "chunk.boilerplate": Check("0, or 3 and more", lambda _, value, __: value == 0 or value >= 3),
    "chunk.skip_headings": _any,
    "mcp.structured": _any,
    "mcp.wait_seconds": _within(0, 60),
    "search.fuse": _any,
    "search.skip": _any,
    "search.use": _any,
    "search.preset": _any,
    "search.semantic_weight": _any,
    "search.keyword_weight": _any,
    "search.community.boost": _any,
    "search.confidence.threshold": _any,
    "search.diversity.relevance": _any,
    "search.current_collection.boost": _any,
    "search.linked.below": _any,
    "search.near_duplicates.overlap": _any,
    "search.per_document.max_passages": _any,
    "search.recency.strength": _any,
    "search.rerank.budget_ms": _within(0, 2_000),
    "search.rerank.candidates": _within(1, 50),
    "search.semantic_duplicates.cosine": _any,
}
"""Settings by dotted name, each with the check that its value, or each entry of a table, must pass."""


def combine(
    folder: Path, before: Sequence[Layer], after: Sequence[Layer], schema: Schema
) -> Settings:
    """Combine the layers with the honoured settings of a folder's file between them, and add notices about the others."""
    file = read_folder_file(folder)
    if file is None or file.layer is None:
        result = settings.combine([*before, *after], schema)
        problem = f"The settings in {file.path} are ignored: it {file.problem}" if file else ""
        return replace(result, notices=(*result.notices, problem)) if problem else result
    trusted = settings.combine([*before, file.layer, *after], schema)
    if is_trusted(file):
        return trusted
    honoured, refused = _split(file.layer, file.folder, schema)
    result = settings.combine([*before, honoured, *after], schema)
    missed = tuple(
        setting
        for setting in refused
        if setting.in_force(trusted.values) != setting.in_force(result.values)
    )
    notices = (_notice(file, missed),) if missed else ()
    return replace(result, ignored=missed, notices=(*result.notices, *notices))


def refused(file: FolderFile, schema: Schema) -> list[Ignored]:
    """Return the settings of a folder's file that need the user's trust."""
    return _split(file.layer, file.folder, schema)[1] if file.layer else []


def _split(layer: Layer, folder: Path, schema: Schema) -> tuple[Layer, list[Ignored]]:
    """Return the settings of a folder's file that are honoured, and those that are not."""
    typed = typed_layer(layer, schema)
    kept: dict[str, Any] = {}
    ignored: list[Ignored] = []
    for key, value in typed.values.items():
        check = ALLOWED.get(key)
        reason = f"allowed: {check.limit}" if check else NOT_ALLOWED
        if check and isinstance(value, Mapping):
            passing = {
                name: item for name, item in value.items() if check.passes(name, item, folder)
            }
            others = [name for name in value if name not in passing]
            ignored += [Ignored(key, value[name], layer.source, reason, name) for name in others]
            if passing or not value:
                kept[key] = passing
        elif check and check.passes("", value, folder):
            kept[key] = value
        else:
            ignored.append(Ignored(key, value, layer.source, reason))
    if any(setting.key.startswith("chunk.") for setting in ignored):
        # The sizes of passages depend on each other.
        reason = "ignored together with the others of its table"
        for key in [key for key in kept if key.startswith("chunk.")]:
            ignored.append(Ignored(key, kept.pop(key), layer.source, reason))
    return Layer(layer.source, kept), ignored


def _notice(file: FolderFile, ignored: Sequence[Ignored]) -> str:
    """Return a notice that names the file, the settings in it that are ignored and how to allow them."""
    names = list(dict.fromkeys(map(named, ignored)))
    keys = ", ".join(names[:MAX_NAMED])
    more, listed = "", ""
    if len(names) > MAX_NAMED:
        more, listed = f" and {len(names) - MAX_NAMED} more", ", which `marklight settings` lists"
    since = " It changed since it was trusted." if record_of(file.folder) else ""
    ignored_in = f"Ignored in {file.path}: {keys}{more}"
    not_allowed = "A folder's file may not set these"
    return Message(
        f"{ignored_in}{listed}. {not_allowed}.{since} If you trust its author,"
        f" `{command(file.folder)}` lists and allows them",
        f"{ignored_in}. {not_allowed}",
    )


def named(setting: Ignored) -> str:
    """Return the key of an ignored setting, with the values that are allowed, if any."""
    entry = f".{setting.entry}" if _PLAIN_NAME.fullmatch(setting.entry) else ""
    allowed = f" ({setting.reason})" if setting.reason.startswith("allowed") else ""
    return f"{setting.key}{entry}{allowed}"


def command(folder: Path) -> str:
    """Return the shell command that trusts a folder."""
    return f"marklight settings --trust {shlex.quote(str(folder))}"
