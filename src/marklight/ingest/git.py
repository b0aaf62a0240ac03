"""Git repositories: run git in isolation, verify that nothing leads out of the folder, list refs and reachable commits.

Git runs without a shell, with an isolated environment, and without anything that a repository configures to be run.

Containment: an unpacked folder can lead git to another repository of the user, by a `.git` file or link, by `commondir`, by
alternates, or by links among objects and refs. A path that leads out is accepted only with a back link that git wrote at the
other end: the file `gitdir` of a worktree, or `core.worktree` of a submodule. Otherwise the user decides, by an entry for the
folder in git's `safe.directory`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO, Self

from marklight.errors import HistoryError, RepositoryOutside
from marklight.ingest.read import first_bytes
from marklight.lazy import dataclass

KEPT = ("GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Environment variables of git that are passed on; all others are removed."""
OVERRIDES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    # Objects that a partial clone lacks are not fetched: nothing leaves this machine.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
MAX_FILE_BYTES = 4_000_000
"""Larger files are binary to git: a diff would take seconds and is never read."""
SETTINGS = (
    *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.quotePath=false"),
    *(f"core.bigFileThreshold={MAX_FILE_BYTES}", "gc.auto=0", "advice.graftFileDeprecated=false"),
    "submodule.recurse=false",
)
QUICK = 20.0
"""Time limit, in seconds, of calls that take milliseconds: a pipe in place of one of its files would block git for ever."""
PATIENCE = 300.0
"""Time limit, in seconds, without any output: git prints nothing while it sorts a large history on a slow disk."""
READ_AHEAD = 32
"""Commits requested from a process before the first is read: few enough that any pipe holds their names."""
WINDOWLESS = getattr(subprocess, "CREATE_NO_WINDOW", 0)


def run(repository: Repository, *arguments: str, given: bytes = b"", seconds: float = 0) -> bytes:
    """Run git and return its output; HistoryError where it fails."""
    output, code, messages = try_run(repository, *arguments, given=given, seconds=seconds)
    if code:
        raise unreadable(repository.folder, messages)
    return output


def try_run(
    repository: Repository | Path, *arguments: str, given: bytes = b"", seconds: float = 0
) -> tuple[bytes, int, str]:
    """Run git and return its output, its exit code and its messages.

    HistoryError where it prints nothing for `seconds` (default: PATIENCE); on Windows that is the limit for the whole run.
    """
    limit, printed = seconds or PATIENCE, 0
    process = _start(repository, arguments, subprocess.PIPE)
    with process:
        try:
            while True:
                try:
                    output, messages = process.communicate(given or None, timeout=limit)
                    return output, process.returncode, messages.decode("utf-8", "replace")
                except subprocess.TimeoutExpired as late:
                    if len(late.output or b"") == printed:
                        raise stalled(repository, limit) from None
                    given, printed = b"", len(late.output)
        except BaseException:
            process.kill()
            raise


class Stream:
    """A git process that handles one request after the other until it is closed.

    A watchdog kills it after PATIENCE seconds without output, and HistoryError is raised.
    """

    def __init__(self, repository: Repository, *arguments: str) -> None:
        self._repository = repository
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = _start(repository, arguments, self._errors)
        except HistoryError:
            self._errors.close()
            raise
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._limit = PATIENCE
        self._waiting_since: float | None = None
        self._stalled = False
        self._closed = Event()
        Thread(target=self._watch, name="git watchdog", daemon=True).start()

    def send(self, lines: bytes) -> bool:
        """Write to its input; return false if it has ended."""
        self._waiting_since = time.monotonic()
        try:
            self._in.write(lines)
            self._in.flush()
        except OSError:
            return False
        finally:
            self._waiting_since = None
        return True

    def read(self) -> bytes:
        """Return the output since the last call, empty at its end. Do not combine with `line` and `take`."""
        return self._wait_for(partial(os.read, self._out.fileno(), 1 << 20))

    def line(self) -> bytes:
        """Return the next line; empty where git has ended."""
        return self._wait_for(self._out.readline)

    def take(self, size: int) -> bytes:
        """Return `size` bytes, fewer where git has ended."""
        data = bytearray()
        while left := size - len(data):
            more = self._wait_for(partial(self._out.read, min(left, 1 << 16)))
            if not more:
                break
            data += more
        return bytes(data)

    def wait_for_error(self) -> str:
        """Wait for git to end and return its error message, in one line."""
        try:
            self._process.wait(QUICK)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.seek(0)
        return error_line(self._errors.read().decode("utf-8", "replace"))

    def close(self) -> None:
        """Kill the process."""
        self._closed.set()
        self._process.kill()
        for file in (self._in, self._out, self._errors):
            with suppress(OSError):  # input that git no longer reads
                file.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wait_for(self, reading: Callable[[], bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        try:
            data = reading()
        finally:
            self._waiting_since = None
        if self._stalled:
            raise stalled(self._repository, self._limit)
        return data

    def _watch(self) -> None:
        """Kill git after the time limit, which ends the blocked read."""
        while not self._closed.wait(self._limit / 10):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._limit:
                self._stalled = True
                self._process.kill()
                return


def _start(
    repository: Repository | Path, arguments: tuple[str, ...], errors: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    folder = repository.folder if isinstance(repository, Repository) else repository
    try:
        return subprocess.Popen(
            ["git", "--no-pager", *settings, "-C", str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(repository),
            creationflags=WINDOWLESS,
        )
    except FileNotFoundError:
        raise HistoryError("git is not installed", "Install git to search the history") from None
    except OSError as error:
        raise HistoryError(f"git cannot be run: {error.strerror or error}") from None


def environment(repository: Repository | Path) -> dict[str, str]:
    """Return the user's environment without variables that would lead git elsewhere, or let it prompt or write.

    In a plain folder git finds the repository itself and checks its owner. Of a known repository it reads the folders that were verified,
    whatever `.git`, `commondir` and `core.worktree` contain by then.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith("GIT_")
    }
    if isinstance(repository, Repository):
        kept |= {"GIT_DIR": str(repository.git_folder), "GIT_COMMON_DIR": str(repository.store)}
        if repository.folder != repository.git_folder:
            kept["GIT_WORK_TREE"] = str(repository.folder)
    return {**kept, **OVERRIDES}


def stalled(repository: Repository | Path, seconds: float) -> HistoryError:
    """Return the error for a git that hangs, for example because one of its files is a pipe or on a lost disk."""
    folder = repository.folder if isinstance(repository, Repository) else repository
    return HistoryError(
        f"git did not respond within {seconds:g} s for the repository at {folder}",
        "Check the repository with `git fsck`",
    )


def unreadable(folder: Path, messages: str) -> HistoryError:
    """Return the error for a repository that git does not read."""
    if "dubious ownership" in messages:
        return HistoryError(
            f"The repository at {folder} belongs to another user, so git does not read it",
            trust_hint(folder),
        )
    return HistoryError(f"git cannot read the repository at {folder}: {error_line(messages)}")


def trust_hint(folder: Path) -> str:
    """Return the command that permits git to read a repository, with the path quoted for the shell."""
    return f"If you trust it: git config --global --add safe.directory {shlex.quote(str(folder))}"


def error_line(messages: str) -> str:
    """Return the error among the messages of git, in one line."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (fatal or lines or ["git ended without a message"])[-1]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")[:300]


MAX_BYTES = 100_000_000
"""Size limit of git's own files: the file `shallow` has 41 bytes for each commit."""
MAX_PATH_BYTES = 10_000
_HASH = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")
REF_NAMESPACES = ("refs/heads", "refs/remotes", "refs/tags")
INDEXED_PATHS = ("HEAD", "packed-refs", "shallow", "objects", "refs", "reftable")
"""Files and folders of a git directory whose content is indexed or decides what is indexed."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository that passed `verify_containment`: its folders, as real paths."""

    folder: Path
    """Root of the working tree; of a bare repository the git directory."""
    store: Path
    """Common git directory: objects and refs; linked worktrees of one repository share it."""
    git_folder: Path
    """Git directory of this worktree: HEAD."""

    def tips(self) -> frozenset[str]:
        """Return the commits of branches, tags and HEAD; fast enough for every query."""
        output = run(self, "for-each-ref", "--format=%(objectname)", *REF_NAMESPACES, seconds=QUICK)
        tips = set(output.decode().split())
        try:
            # Mostly the name of a branch; a commit hash where HEAD is detached.
            data = first_bytes(self.git_folder / "HEAD", MAX_BYTES)
            head = data.decode("utf-8", "replace").strip()
        except OSError:
            head = ""
        return frozenset(tips | ({head} if _HASH.fullmatch(head) else set()))

    def shallow_edge(self) -> frozenset[str]:
        """Return the commits at which a shallow clone ends; none in a full clone."""
        try:
            return frozenset(first_bytes(self.store / "shallow", MAX_BYTES).decode("ascii").split())
        except (FileNotFoundError, UnicodeDecodeError):
            return frozenset()
        except OSError as error:  # a pipe, on which git itself would block
            raise HistoryError(
                f"git cannot read the repository at {self.folder}: {error}"
            ) from None

    def has_objects(self, hashes: Collection[str]) -> bool:
        """Return true if all of these objects exist."""
        lines = "".join(f"{hash}\n" for hash in hashes).encode()
        output, code, _ = try_run(self, "cat-file", "--batch-check", given=lines)
        return code == 0 and b" missing\n" not in output

    def reachable(self, tips: Iterable[str], without: Iterable[str] = ()) -> tuple[list[str], str]:
        """Return the commits reachable from `tips` and not from `without`, newest first, and git's error if it stopped."""
        revisions = [*tips, *(f"^{hash}" for hash in without)]
        lines = "".join(f"{hash}\n" for hash in revisions).encode()
        arguments = ("rev-list", "--ignore-missing", "--stdin")
        output, code, messages = try_run(self, *arguments, given=lines)
        return output.decode().split(), error_line(messages) if code else ""

    def refs_at(self, hashes: Collection[str]) -> dict[str, list[str]]:
        """Return the branches and tags that point at these commits."""
        if not hashes:
            return {}
        columns = "--format=%(objectname) %(*objectname) %(refname:short)"
        points = [f"--points-at={hash}" for hash in hashes]
        output, _, _ = try_run(self, "for-each-ref", columns, *points, *REF_NAMESPACES)
        refs: dict[str, list[str]] = {}
        for line in output.decode("utf-8", "backslashreplace").splitlines():
            direct, peeled, name = line.split(" ", 2)
            refs.setdefault(peeled or direct, []).append(name)
        return refs

    def full_hash(self, short: str) -> str:
        """Return the commit with this hash prefix; empty where there is none or more than one."""
        output, code, _ = try_run(self, "rev-parse", "--verify", "--quiet", f"{short}^{{commit}}")
        return "" if code else output.decode().strip()


def find(folder: Path) -> Repository | None:
    """Return the repository around a folder; HistoryError where git refuses to read it or it leads elsewhere."""
    arguments = ("rev-parse", "--git-common-dir", "--absolute-git-dir")
    output, _, messages = try_run(folder, *arguments, seconds=QUICK)
    if not output:
        if "not a git repository" in messages or not folder.is_dir():
            return None
        raise unreadable(folder, messages)
    store, *rest = os.fsdecode(output).removesuffix("\n").split("\n")
    if len(rest) != 1:
        raise HistoryError(f"The path of the repository around {folder} contains a line break")
    resolved, git_folder = folder.resolve(), Path(rest[0]).resolve()
    # Not what git calls the root of the files: `core.worktree` could name any folder above.
    above = (folder for folder in (resolved, *resolved.parents) if os.path.lexists(folder / ".git"))
    root = git_folder if resolved.is_relative_to(git_folder) else next(above, resolved)
    repository = Repository(root, (resolved / store).resolve(), git_folder)
    verify_containment(repository)
    return repository


def may_be_in_repository(folder: Path) -> bool:
    """Return true if a folder or one above it looks like a repository; git, which may refuse it, is not run."""
    resolved = folder.resolve()
    return any(
        os.path.lexists(each / ".git")
        or ((each / "HEAD").is_file() and (each / "objects").is_dir())
        for each in (resolved, *resolved.parents)
    )


def verify_containment(repository: Repository) -> None:
    """Raise RepositoryOutside where a repository leads out of its folder to one that does not name the folder."""
    try:
        _verify_directories(repository)
        _verify_content(repository)
    except RepositoryOutside:
        if not _is_safe(repository):
            raise


def _verify_directories(repository: Repository) -> None:
    root, git_folder, store = repository.folder, repository.git_folder, repository.store
    if git_folder.is_relative_to(root) and store.is_relative_to(root):
        return
    if git_folder.parent == store / "worktrees":
        if _worktree(git_folder) == root:
            return
        hint = "If this is your worktree and was moved: run `git worktree repair` in it"
        raise _outside(repository, "its git directory", git_folder, hint)
    if git_folder.is_relative_to(root):
        raise _outside(repository, "the file commondir in its git directory", store)
    if git_folder != store or _core_worktree(repository) != root:
        raise _outside(repository, "its git directory", git_folder)


def _worktree(git_folder: Path) -> Path | None:
    """Return the folder of a linked worktree, by the back link in its git directory."""
    try:
        path = os.fsdecode(first_bytes(git_folder / "gitdir", MAX_PATH_BYTES))
        link = git_folder / path.rstrip("\r\n")
        return link.parent.resolve() if link.name == ".git" else None
    except (OSError, ValueError):
        return None


def _core_worktree(repository: Repository) -> Path | None:
    """Return the folder of a submodule, by the setting in its git directory."""
    arguments = ("config", "--null", "--get", "core.worktree")
    output, code, _ = try_run(repository, *arguments, seconds=QUICK)
    folder = repository.git_folder / os.fsdecode(output.removesuffix(b"\0"))
    return None if code else folder.resolve()


def _verify_content(repository: Repository) -> None:
    """Follow links among objects and refs, and alternates, as long as they stay inside."""
    paths = [
        str(repository.git_folder / "HEAD"),
        *(str(repository.store / name) for name in INDEXED_PATHS),
    ]
    # Alternates outside are rejected although they give objects without refs, as in `git clone --shared`: hashes of private commits
    # are no secret (lock files and submodules have them), and one of them in a ref is enough to read all of its history.
    if os.path.lexists(repository.store / "objects" / "info" / "alternates"):
        lines = os.fsdecode(run(repository, "count-objects", "-v")).removesuffix("\n").split("\n")
        mark = "alternate: "  # also of folders that others name in turn
        for path in (line.removeprefix(mark) for line in lines if line.startswith(mark)):
            _verify_inside(repository, "objects/info/alternates", path)
            paths.append(os.path.realpath(path))
    seen = set(paths)
    for path in paths:
        for link in _links(path):
            _verify_inside(repository, link, target := os.path.realpath(link))
            if target not in seen:
                seen.add(target)
                paths.append(target)


def _links(path: str) -> Iterator[str]:
    """Return all symbolic links at a path and below it; none is followed."""
    if os.path.islink(path):
        yield path
        return
    folders = [path]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _verify_inside(repository: Repository, what: str, path: str) -> None:
    target = Path(os.path.realpath(path))
    # Git quotes paths with odd characters, which are then not absolute.
    if not os.path.isabs(path) or not (
        target.is_relative_to(repository.folder) or target.is_relative_to(repository.store)
    ):
        raise _outside(repository, what, path)


def _outside(
    repository: Repository, what: str, target: Path | str, hint: str = ""
) -> RepositoryOutside:
    return RepositoryOutside(
        f"The repository at {repository.folder} is not indexed: {what} leads out of the folder, to {target}",
        hint or trust_hint(repository.folder),
    )


def _is_safe(repository: Repository) -> bool:
    """Return true if the user listed exactly this folder in `safe.directory`.

    `*` is no decision on one folder, and the repository's own configuration does not count.
    """
    arguments = ("config", "--null", "--show-scope", "--type=path", "--get-all", "safe.directory")
    output, _, _ = try_run(repository, *arguments, seconds=QUICK)
    fields = os.fsdecode(output).split("\0")
    folders: list[str] = []
    for scope, value in zip(fields[::2], fields[1::2], strict=False):
        if scope in ("system", "global"):
            # An empty value resets the list, as in git.
            folders = [*folders, value] if value else []
    return any(
        os.path.isabs(listed) and Path(listed).resolve() == repository.folder for listed in folders
    )
