"""Client of the daemon: finds the one that serves a library and calls the library's operations there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from marklight import __version__, errors
from marklight.place import Place, complete_commands
from marklight.surfaces.daemon.discovery import State, remove_state, state_files
from marklight.surfaces.daemon.ipc_protocol import (
    ClosedEarly,
    Connection,
    DaemonFull,
    SettingsMismatch,
    Unreachable,
    WrongPeer,
    decode,
)

if TYPE_CHECKING:
    from marklight.answer import Answer
    from marklight.commits import Commits
    from marklight.library import Library
    from marklight.listing import Listing
    from marklight.report import Extract, Links, Outline, Related, Report

PROGRAM = (sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()")
"""Command line of this program; -P, because a document can have the name of a Python module."""
EXIT_SECONDS = 2.0
"""Time for a killed process to release its lock, which may happen after its port is closed."""
NOT_USED = "This command works without it"
OVERLOADED = "closes connections at once, probably because it has too many clients"

ProgressCallback = Callable[[str, int, int], None]


def _ignore_progress(phase: str, done: int, total: int) -> None:
    pass


def attach(
    folder: Path, assignments: Sequence[str], purpose: str, notify: Callable[[str], None]
) -> tuple[Connection, dict[str, Any]] | None:
    """Connect to the daemon of a library; None without one of the same version and settings."""
    for file, state in list(state_files(folder)):
        daemon = f"The daemon (process {state.pid})"
        try:
            if (connection := connect(file, state, purpose)) is None:
                continue
            if state.version == __version__:
                return connection, connection.negotiate(assignments)
            connection.close()
            other = f"runs Marklight {state.version}, not {__version__}"
            notify(
                complete_commands(
                    f"{daemon} {other}. {NOT_USED}; `marklight serve --stop` ends it", folder
                )
            )
        except ClosedEarly:
            notify(f"{daemon} {OVERLOADED}. {NOT_USED}")
        except Unreachable:
            notify(
                complete_commands(
                    f"{daemon} does not answer. {NOT_USED}; `marklight serve --stop` ends it",
                    folder,
                )
            )
        except DaemonFull:
            notify(f"{daemon} already has its maximum number of clients. {NOT_USED}")
        except SettingsMismatch:
            pass
    return None


def connect(file: Path, state: State, purpose: str) -> Connection | None:
    """Connect to the daemon of a state file; remove the file and return None if that daemon has ended."""
    try:
        return Connection(state, purpose)
    except WrongPeer:
        pass
    except ClosedEarly:
        if is_running(file, EXIT_SECONDS):
            raise
    except Unreachable:
        if is_running(file, 0.0):
            raise
    remove_state(file, state)
    return None


def is_running(file: Path, wait_seconds: float) -> bool:
    """Return true if a daemon holds the lock of this state file; its process ID and port may be reused by others."""
    from filelock import FileLock, Timeout  # slow to import, and rarely needed

    try:
        with FileLock(file.with_suffix(".lock"), timeout=wait_seconds, mode=0o600):
            return False
    except (Timeout, OSError):
        return True


def set_options(assignments: Sequence[str]) -> list[str]:
    """Return assignments of settings as `--set` options."""
    return [argument for item in assignments for argument in ("--set", item)]


class RemoteLibrary:
    """The operations of a library, executed by its daemon; in this process should the connection break."""

    def __init__(
        self,
        connection: Connection,
        description: Mapping[str, Any],
        place: Place,
        assignments: Sequence[str],
        per_call: Sequence[str],
        notify: Callable[[str], None],
    ) -> None:
        self.state = connection.state
        self.place = place
        self.collections = {
            name: Path(folder) for name, folder in description["collections"].items()
        }
        self.link_address: str = description["link_address"]
        self._connection: Connection | None = connection
        self._assignments, self._per_call = assignments, list(per_call)
        self._notify = notify
        self._local: Library | None = None
        self._calls = 0

    def search(self, text: str, **options: Any) -> Answer:
        """Call `Library.search`."""
        answer: Answer = self._call("search", {"query": text}, options)
        return answer

    def list_documents(self, text: str | None = None, **options: Any) -> Listing:
        """Call `Library.list_documents`."""
        listing: Listing = self._call("list_documents", {"query": text}, options)
        return listing

    def commits(self, text: str, **options: Any) -> Commits:
        """Call `Library.commits`."""
        commits: Commits = self._call("commits", {"query": text}, options)
        return commits

    def get(self, ref: str, **options: Any) -> Extract:
        """Call `Library.get`."""
        extract: Extract = self._call("get", {"ref": ref}, options)
        return extract

    def outline(self, ref: str, **options: Any) -> Outline:
        """Call `Library.outline`."""
        outline: Outline = self._call("outline", {"ref": ref}, options)
        return outline

    def links(self, ref: str | None = None, **options: Any) -> Links:
        """Call `Library.links`."""
        links: Links = self._call("links", {"ref": ref}, options)
        return links

    def related(self, ref: str, **options: Any) -> Related:
        """Call `Library.related`."""
        related: Related = self._call("related", {"ref": ref}, options)
        return related

    def index(self, **options: Any) -> Report:
        """Call `Library.index`."""
        report: Report = self._call("index", {}, options)
        return report

    def status(self) -> dict[str, Any]:
        """Call `Library.status`."""
        status: dict[str, Any] = self._call("status", {}, {})
        return status

    def close(self) -> None:
        """Close the connection, and the local library if one was opened."""
        if self._connection:
            self._connection.close()
            self._connection = None
        if self._local:
            self._local.close()

    def __enter__(self) -> RemoteLibrary:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, operation: str, subject: dict[str, Any], options: dict[str, Any]) -> Any:
        if self._connection:
            try:
                return self._call_daemon(self._connection, operation, subject, dict(options))
            except Unreachable:
                self._connection.close()
                self._connection = None
                self._notify(f"The daemon ended. {NOT_USED}")
        if self._local is None:
            from marklight.library import Library

            folder = self.place.part or self.place.folder
            self._local = Library(folder, assignments=self._assignments)
        return getattr(self._local, operation)(*subject.values(), **options)

    def _call_daemon(
        self,
        connection: Connection,
        operation: str,
        subject: dict[str, Any],
        options: dict[str, Any],
    ) -> Any:
        progress: ProgressCallback = options.pop("progress", _ignore_progress)
        # The daemon has another working directory.
        near = options.pop("near", None) or Path.cwd()
        self._calls += 1
        connection.send(
            {
                "id": self._calls,
                "operation": operation,
                "arguments": subject | options,
                "near": str(near),
                "part": str(self.place.part) if self.place.part else None,
                "assignments": self._per_call,
            }
        )
        while True:
            message = connection.receive()
            if "progress" in message:
                progress(*message["progress"])
            elif "error" in message:
                raise _error(message["error"])
            elif "result" in message:
                return decode(message["result"])


def _error(fields: Mapping[str, str]) -> Exception:
    """Create the exception that the library in the daemon raised."""
    known = getattr(errors, fields["type"], None)
    if known is None:
        # An unexpected error, shown under its own name.
        unexpected: Exception = type(fields["type"], (Exception,), {})(fields["message"])
        return unexpected
    error: Exception = known(fields["message"], fields["hint"])
    return error
