"""Convert the validated arguments of a search to a query: filters, dates, globs and collections, or raise `UsageError`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.errors import SettingsError, UsageError
from marklight.query import PARAMETERS, Filters, Mode, PathPattern, Query, result_limit
from marklight.text.analyzer import first_words

if TYPE_CHECKING:
    from marklight.library import Library

FILTERS = (*PARAMETERS, "near", "part", "mode")
"""Arguments of `document_query` that every search of documents has."""


def document_query(
    library: Library,
    query: str,
    *,
    near: Path | None,
    part: Path | None,
    mode: str,
    hypothesis: str | None = None,
    limit: int | None = None,
    max_tokens: int | None = None,
    **options: Any,
) -> Query:
    """Return the query of a search of documents; the other options are filters and fields of `Query`."""
    folders = library.collections
    collection = options["collection"]
    others = library.shared.other_collections(collection) if library.shared else ()
    selected = collections(collection, [*folders, *others])
    convert: dict[str, Callable[[Any], Any]] = {
        "collection": lambda _: selected,
        "path": lambda globs: path_filter(globs, folders, selected, near),
        "exclude": lambda globs: path_filter(globs, folders, selected, near),
        "tag": lambda tags: tuple(name.removeprefix("#") for name in texts(tags)),
        "where": pairs,
        "after": moment,
        "before": lambda day: moment(day, last=True),
    }
    filters: dict[str, Any] = {
        field: convert.get(name, texts)(options.pop(name)) for name, field in PARAMETERS.items()
    }
    within = scope_of(folders, part) if part else library.scope
    several = len(folders) > 1
    text, typed = query_text(query)
    return Query(
        text=text,
        raw_text=typed,
        limit=result_limit(limit, max_tokens),
        max_tokens=max_tokens,
        fills_budget=limit is None and max_tokens is not None,
        mode=Mode(mode),
        filters=Filters(**filters, within=within),
        hypothesis="" if hypothesis is None else typed_text(hypothesis, "hypothesis"),
        collections=tuple(folders) if several else (),
        current_collection=collection_of(folders, near or Path.cwd()) if several else "",
        **options,
    )


def commit_query(
    query: str,
    *,
    files: Sequence[str],
    author: Sequence[str],
    after: str | None,
    before: str | None,
    mode: str,
    **options: Any,
) -> Query:
    """Return the query of a search of commits; the other options are fields of `Query`."""
    filters = Filters(
        files=globs(files),
        authors=tuple(name.strip() for name in texts(author)),
        after=moment(after),
        before=moment(before, last=True),
    )
    text, typed = query_text(query)
    return Query(text=text, raw_text=typed, mode=Mode(mode), filters=filters, **options)


def context_level(level: str | None, context: int | None) -> tuple[str, int]:
    """Return the context level, empty for none, and the number of neighbours on each side."""
    if context is None:
        return level or "", 1
    if level not in (None, "neighbours"):
        raise UsageError(
            f"A context of {context} means neighbours, but the level is {level!r}",
            "Leave out one of the two",
        )
    return "neighbours", context


def query_text(query: str) -> tuple[str, str]:
    """Return the text of a query and, where only its beginning is searched, the text as typed."""
    typed = typed_text(query)
    text = first_words(typed)
    return text, "" if text == typed else typed


def typed_text(text: str, name: str = "query") -> str:
    """Return a text that is not empty."""
    if not text.strip():
        raise UsageError(f"The {name} is empty", "Type some words")
    # A terminal may pass bytes that are not text; they could not be written anywhere.
    return text.encode("utf-8", "replace").decode()


def texts(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values of a filter; none of them is empty, which often is a shell variable that is not set."""
    for value in values:
        if not _text(value).strip():
            raise UsageError("A filter is empty", "Leave it out to search everywhere")
    return tuple(values)


def _text(value: str) -> str:
    """Return a text that can be compared and stored: valid Unicode without NUL."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{value!r} is not valid text") from None
    if "\0" in value:
        raise UsageError(f"{value!r} contains a NUL character")
    return value


def globs(values: Iterable[str]) -> tuple[str, ...]:
    """Return the path patterns of a filter."""
    patterns = texts(values)
    if not patterns:
        return ()
    from marklight.text.globs import validate_glob

    return tuple(validate_glob(pattern) for pattern in patterns)


def path_filter(
    values: Iterable[str], known: Mapping[str, Path], selected: Sequence[str], near: Path | None
) -> tuple[PathPattern, ...]:
    """Return the patterns of a filter of documents, whose values are globs or places."""
    patterns = globs(values)
    if not patterns:
        return ()
    from marklight.library.references import filter_patterns

    return filter_patterns(patterns, known, selected, near)


def collections(values: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return names of collections that exist."""
    names = texts(values)
    for name in names:
        if name not in known:
            raise UsageError(f"No such collection: {name!r}", f"Known: {', '.join(known)}")
    return names


def pairs(where: Mapping[str, str] | Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the keys and values of a frontmatter filter."""
    if isinstance(where, Mapping):
        return tuple((_text(key), _text(value)) for key, value in where.items())
    result = []
    for item in texts(where):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"A frontmatter filter must be KEY=VALUE, not {item!r}")
        result.append((key.strip(), value.strip()))
    return tuple(result)


def moment(day: str | None, *, last: bool = False) -> str | None:
    """Return a day, or a time of day, in the form that filters compare; of a period its first or its last day."""
    if day is None:
        return None
    from marklight.text.dates import validate_date

    return validate_date(_text(day), last=last)


def check_names(names: Iterable[str]) -> None:
    """Raise SettingsError for a name that cannot be the beginning of a path."""
    for name in names:
        if "/" in name or name in ("", ".", "..") or name != name.strip():
            raise SettingsError(
                f"A collection cannot be called {name!r}", "Use a name without `/`, such as docs"
            )


def collection_of(collections: Mapping[str, Path], folder: Path) -> str:
    """Return the innermost collection that contains a folder; empty if none does."""
    containing = [name for name, root in collections.items() if folder.is_relative_to(root)]
    return max(containing, key=lambda name: len(collections[name].parts), default="")


def scope_of(collections: Mapping[str, Path], part: Path) -> tuple[tuple[str, str], ...]:
    """Return the scope of a folder: whole collections below it, or a folder of one collection."""
    below = tuple((name, "") for name, root in collections.items() if root.is_relative_to(part))
    owner = collection_of(collections, part)
    if owner and collections[owner] != part:
        below += ((owner, part.relative_to(collections[owner]).as_posix()),)
    if not below:
        roots = ", ".join(map(str, collections.values()))
        raise UsageError(f"{part} is in no collection of its library", f"The library has: {roots}")
    return below
