"""Render answers as compact text for a model, from the same values that programs get.

A line of an answer is either ours or text of a document, which has `> ` before it. What a document or a repository
gives to a line of ours (a path, headings, a subject) stays within that line and never begins it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marklight.escaping import one_line, quoted
from marklight.formatting import place_of
from marklight.model import trail
from marklight.surfaces.mcp.budget import Block, shortened, within
from marklight.surfaces.mcp.wording import for_assistants, room_of
from marklight.surfaces.render import heading_text, lines_text

Found = Mapping[str, Any]
MOST_TOKENS = 2000
"""Of an answer that nobody has set another size for (contract)."""
MOST_PASSAGES = 5
"""Of one where nobody has said how many (contract)."""
MOST_FILES = 10
"""Files of a commit that are named below its message."""
WHOLE_COMMIT = "git show"
"""What shows a commit whole."""
TOLD_BY_STATE = ("note: indexing", "note: Semantic search is incomplete")
MOST_FAILURES = 10
"""Files that could not be indexed, told by name."""


def place(found: Found, several: bool, lines: bool = True) -> str:
    """`guide/auth.md:120-148`, which get_document takes as it is; with its collection where there are several."""
    name = f"{found['collection']}/{found['path']}" if several else found["path"]
    return place_of(name, found["lines"]) if lines else one_line(name)


def search_text(
    found: Found, several: bool, state: str, tokens: int = MOST_TOKENS, wanted: int = 0
) -> str:
    """Each passage under the line that says where it stands; where there is none, why.

    Where there are fewer than wanted, what was left out of the same documents is told too.
    """
    # How far a run is stands in the state already, and is a moment newer there.
    told = [each for each in _notes(found) if not (state and each.startswith(TOLD_BY_STATE))]
    notes = [*([state] if state else []), *told]
    index = found["index"]
    if index["pending"] and not any("embedd" in said for said in notes):
        notes.append(
            f"note: {index['pending']:,} of {index['chunks']:,} passages are found by words only, not by meaning yet"
        )
    blocks = [
        Block(_head(each, several), each["content"].strip(), place(each, several))
        for each in found["results"]
    ]
    if not blocks:
        return within([], [_nothing(found, state), *notes], tokens)
    if found["steps"]:
        steps = ", ".join(f"{each['stage']} {each['count']}" for each in found["steps"])
        notes.insert(0, f"stages and how many each left: {steps}")
    left = found["stats"].get("after_doc_limit", wanted)
    if left < wanted and (more := found["stats"]["after_same_meaning"] - left) > 0:
        notes.append(f"note: {more} more in the same documents; max_chunks_per_document shows more")
    return within(blocks, notes, tokens)


def commits_text(found: Found, tokens: int = MOST_TOKENS) -> str:
    """Each passage under the line that says which commit it is of; where there is none, why."""
    results, notes = found["results"], _notes(found)
    several = len({each["repository"] for each in results}) > 1
    if not results:
        why = _why(found, "No commit matches the query")
        nothing = f"{why}. Try other words or fewer filters."
        return within([Block(nothing, "", "")], notes, tokens, WHOLE_COMMIT).replace("\n\n", "\n")
    blocks = [Block(_commit(each, several), _message(each), each["short"]) for each in results]
    return within(blocks, notes, tokens, WHOLE_COMMIT)


def extract_of(found: Found, several: bool, tokens: int) -> dict[str, Any]:
    """A piece of a document as far as it may be told; text and values are cut alike."""
    around = len(extract_text({**found, "content": ""}, several))
    return shortened(found, place(found, several, lines=False), around, tokens)


def extract_text(found: Found, several: bool) -> str:
    """Quote a piece of a document below the line with its place."""
    text = f"document: {_headed(found, several)}\n{quoted(found['content'])}"
    return "\n\n".join([text, *_joined(_notes(found))])


def outline_text(found: Found, several: bool) -> str:
    """List headings, indented by level; the deepest are left out where there are too many."""
    headings = found["outline"]
    if not headings:
        return "\n".join(
            [f"no headings in document: {place(found, several, lines=False)}", *_notes(found)]
        )
    levels = sorted({each["level"] for each in headings})
    for deepest in reversed(levels):
        shown = [each for each in headings if each["level"] <= deepest]
        text = _tree(found, shown, levels[0], several, len(headings) - len(shown))
        if len(text) <= room_of(MOST_TOKENS):
            break
    return text[: room_of(MOST_TOKENS)]


def related_text(found: Found, several: bool) -> str:
    """Each document with its score and the reasons."""
    rows = [
        f"({each['score']:.2f}) {place(each, several, lines=False)}"
        f"{one_line(' § ' + each['title']) if each['title'] else ''}\nwhy: {one_line('; '.join(each['reasons']))}"
        for each in found["related"]
    ]
    if not rows:
        rows = [
            f"nothing belongs to {place(found, several, lines=False)} by links, tags or meaning"
        ]
    return "\n\n".join([*rows, *_joined(_notes(found))])


def status_text(found: Found, state: str, watching: bool) -> str:
    """What is indexed, what is still to do and what failed, in a few lines."""
    lines = [state] if state else []
    lines.append(
        f"{found['documents']:,} documents, {found['chunks']:,} passages,"
        f" {found['embedded']:,} of them found by meaning too (model {found['model']})"
    )
    lines += [f"{found[key]}" for key in ("model_problem", "reranker_problem") if found.get(key)]
    if len(found["collections"]) > 1:
        each = (f"{name} ({one['documents']:,})" for name, one in found["collections"].items())
        lines.append(f"collections: {', '.join(each)}")
    lines.append(
        "changes on the disk are followed"
        if watching
        else "the disk is compared before every answer"
    )
    failed = found["failed"]
    lines += [f"not indexed: {each['path']}: {each['reason']}" for each in failed[:MOST_FAILURES]]
    if len(failed) > MOST_FAILURES:
        lines.append(f"… and {len(failed) - MOST_FAILURES} more files that are not indexed")
    return "\n".join([*map(for_assistants, lines), *_notes(found)])


def _head(result: Found, several: bool) -> str:
    """`[1] guide/auth.md:120-148 § Auth > Token refresh (0.83)`, and below it why, where that was asked for."""
    head = f"[{result['rank']}] {_headed(result, several)} ({result['score']:.2f})"
    why = ", ".join(f"{each['stage']} {each['value']:.3g}" for each in result["why"])
    return f"{head}\nwhy: {why}" if why else head


def _commit(result: Found, several: bool) -> str:
    """`[1] 3f2a9c1 2026-03-01 Ada Lovelace: what it did (0.83)`, and below it the names of files."""
    name = f"{result['repository']}/{result['short']}" if several else result["short"]
    author = result["author"]["name"] or result["author"]["email"]
    said = f"{name} {result['date'][:10]} {author}: {result['subject']}"
    head = f"[{result['rank']}] {one_line(said)} ({result['score']:.2f})"
    message = result["kind"] == "message"
    files = result["files"] if message else result["paths"]
    if not files:
        return head
    more = len(files[MOST_FILES:]) + (result["more_files"] if message else 0)
    named = ", ".join(map(one_line, files[:MOST_FILES]))
    return f"{head}\nfiles: {named}{f' and {more} more' if more else ''}"


def _message(result: Found) -> str:
    """Return the text that was found, without the subject, which the header contains."""
    text = str(result["content"]).strip("\n")
    message = result["kind"] == "message"
    return text.removeprefix(result["subject"]).strip() if message else text


def _headed(found: Found, several: bool) -> str:
    headings = one_line(trail(found["title"], found["headings"]))
    return f"{place(found, several)} § {headings}" if headings else place(found, several)


def _nothing(found: Found, state: str) -> str:
    """Nothing matches, an answer is unlikely, nothing is there yet or at all: each is another thing."""
    if not found["index"]["documents"]:
        return (
            "Nothing is indexed yet: ask again in a moment." if state else "There are no documents."
        )
    why = _why(found, "No passage matches the query")
    return f"{why}. Try other words, fewer filters or search_with_hypothesis."


def _why(found: Found, otherwise: str) -> str:
    """Why there are no results, and what helps."""
    said = (found["abstained"] or otherwise, found["advice"])
    return for_assistants(". ".join(filter(None, said)))


def _tree(found: Found, shown: Sequence[Found], top: int, several: bool, left: int) -> str:
    width = max(len(lines_text(each["lines"])) for each in shown)
    rows = [
        f"{lines_text(each['lines']):<{width}} {heading_text(each['level'] - top, each['text'], each['anchor'])}"
        for each in shown
    ]
    more = [f"note: {left} deeper headings left out; get_document shows a section"] if left else []
    return "\n".join(
        [f"document: {place(found, several, lines=False)}", *rows, *more, *_notes(found)]
    )


def _notes(found: Found) -> list[str]:
    return [f"note: {for_assistants(each)}" for each in found["notices"]]


def _joined(notes: list[str]) -> list[str]:
    return ["\n".join(notes)] if notes else []
