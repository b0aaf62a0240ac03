"""A library as its daemon has it: the same verbs, the same nouns, and no model in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from marklight import errors
from marklight.place import Place, locate
from marklight.surfaces.daemon.attach import Gone, Line, attach, is_off
from marklight.surfaces.daemon.wire import unpacked

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.commits import Commits
    from marklight.library import Library
    from marklight.report import Extract, Links, Outline, Related, Report

Told = Callable[[str, int, int], None]


def _nothing(phase: str, done: int, total: int) -> None:
    pass


def reach(
    folder: Path | None,
    assignments: Sequence[str],
    say: Callable[[str], None],
    *,
    searching: bool = False,
) -> Remote | None:
    """The library around a folder as its daemon has it; None where none runs that would do as we would."""
    if is_off():
        return None
    place = locate(folder)
    passed = [one for one in assignments if searching and one.lstrip().startswith("search.")]
    others = [one for one in assignments if one not in passed]
    found = attach(place.folder, others, "call", say)
    return Remote(*found, place, assignments, passed, say) if found else None


class Remote:
    """One connection, and a library of our own should it break: what is asked is answered."""

    def __init__(
        self,
        line: Line,
        told: Mapping[str, Any],
        place: Place,
        assignments: Sequence[str],
        passed: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self.state = line.state
        self.place = place
        self.collections = {name: Path(folder) for name, folder in told["collections"].items()}
        self.link_address: str = told["link_address"]
        self._line: Line | None = line
        self._assignments, self._passed = assignments, list(passed)
        self._say = say
        self._own: Library | None = None
        self._asked = 0

    # Verbs

    def search(self, text: str, **given: Any) -> Answer:
        """As `Library.search`."""
        found: Answer = self._call("search", {"query": text}, given)
        return found

    def commits(self, text: str, **given: Any) -> Commits:
        """As `Library.commits`."""
        found: Commits = self._call("commits", {"query": text}, given)
        return found

    def get(self, ref: str, **given: Any) -> Extract:
        """As `Library.get`."""
        found: Extract = self._call("get", {"ref": ref}, given)
        return found

    def outline(self, path: str, **given: Any) -> Outline:
        """As `Library.outline`."""
        found: Outline = self._call("outline", {"path": path}, given)
        return found

    def links(self, path: str | None = None, **given: Any) -> Links:
        """As `Library.links`."""
        found: Links = self._call("links", {"path": path}, given)
        return found

    def related(self, path: str, **given: Any) -> Related:
        """As `Library.related`."""
        found: Related = self._call("related", {"path": path}, given)
        return found

    def index(self, **given: Any) -> Report:
        """As `Library.index`."""
        found: Report = self._call("index", {}, given)
        return found

    def status(self) -> dict[str, Any]:
        """As `Library.status`."""
        found: dict[str, Any] = self._call("status", {}, {})
        return found

    def close(self) -> None:
        """Hang up."""
        if self._line:
            self._line.close()
            self._line = None
        if self._own:
            self._own.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Inside

    def _call(self, verb: str, asked: dict[str, Any], given: dict[str, Any]) -> Any:
        if self._line:
            try:
                return self._ask(self._line, verb, asked, dict(given))
            except Gone:
                self._line.close()
                self._line = None
                self._say("the daemon went away: this works alone")
        if self._own is None:
            from marklight.library import Library

            folder = self.place.part or self.place.folder
            self._own = Library(folder, assignments=self._assignments)
        return getattr(self._own, verb)(*asked.values(), **given)

    def _ask(self, line: Line, verb: str, asked: dict[str, Any], given: dict[str, Any]) -> Any:
        progress: Told = given.pop("progress", _nothing)
        # The daemon stands in another folder than the asker.
        near = given.pop("near", None) or Path.cwd()
        self._asked += 1
        line.send(
            {
                "id": self._asked,
                "verb": verb,
                "arguments": asked | given,
                "near": str(near),
                "part": str(self.place.part) if self.place.part else None,
                "assignments": self._passed,
            }
        )
        while True:
            told = line.receive()
            if "progress" in told:
                progress(*told["progress"])
            elif "error" in told:
                raise _error(told["error"])
            elif "result" in told:
                return unpacked(told["result"])


def _error(told: Mapping[str, str]) -> Exception:
    """The error that the daemon's library raised, as if ours had."""
    known = getattr(errors, told["type"], None)
    if known is None:
        # A fault, told by its own name.
        fault: Exception = type(told["type"], (Exception,), {})(told["message"])
        return fault
    found: Exception = known(told["message"], told["hint"])
    return found
