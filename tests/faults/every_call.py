"""Run commands of the command line with one system call failing, or with the power lost, and check the index afterwards.

`python -m tests.faults.every_call PART OF [COMMAND…]` tries every OF-th case, from number PART on, and prints the counts as JSON.
It builds `shim.c` and starts itself again with it; each case is a fork, so that a case takes no start of Python.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from marklight.surfaces.cli import run
from tests.faults.committing import in_child, in_memory
from tests.making import library, write
from tests.oracle import MemoryEngine
from tests.oracle.engine import memory_snapshot
from tests.simulation.process import content
from tests.simulation.world import warm_up, without_generation

KINDS = (
    "open",
    "read",
    "write",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "stat",
    "truncate",
    "mmap",
    "list",
    "link",
)
PERSISTENT = ("write", "fsync", "truncate")
"""Kinds of calls that also fail from a number on, as on a disk that stays full."""
BEFORE = {
    "river.md": "# River\n\nThe river runs by the castle garden. See [[engine]].\n",
    "engine.md": "# Engine\n\nA copper engine in the harbour.\n\n## Parts\n\nThe meadow has none.\n",
    "deep/violin.md": "# Violin\n\nA violin of copper and river wood.\n",
}
AFTER = {
    **BEFORE,
    "engine.md": "# Engine\n\nA new engine by the river garden.\n",
    "new.md": "# New\n\nA harbour castle.\n",
}
del AFTER["deep/violin.md"]


class Case(NamedTuple):
    """A command, and the call of it that fails; without a kind, the power is lost after `number` changes of files."""

    command: str
    kind: str
    number: int
    error: int
    persistent: bool = False

    def __str__(self) -> str:
        if not self.kind:
            return f"{self.command}: power lost after change {self.number} ({LOSSES[self.error]})"
        later = " and all later ones" if self.persistent else ""
        return f"{self.command}: {self.kind} {self.number}{later} fails with {errno.errorcode[self.error]}"


COMMANDS: dict[str, tuple[str, ...]] = {
    "index": ("index", "DOCS"),
    "update": ("index", "DOCS"),
    "search": ("search", "river", "DOCS"),
    "search without refresh": ("search", "river", "DOCS", "--no-refresh"),
    "export": ("export", "OUT", "DOCS"),
    "import": ("import", "ARCHIVE", "DOCS"),
    "doctor": ("doctor", "DOCS"),
    "clean": ("clean", "DOCS", "--yes"),
}
NEW_INDEX = ("index", "import")
"""Commands that begin without an index."""


class Setting:
    """The folders of all cases: documents, and the user's data, which is put back before each case."""

    def __init__(self, root: Path) -> None:
        self.root, self.docs, self.data = root, root / "docs", root / "data"
        os.environ |= {
            f"MARKLIGHT_{name}_DIR": str(root / name.lower()) for name in ("DATA", "STATE", "CACHE")
        }
        os.environ |= {
            "XDG_CONFIG_HOME": str(root),
            "MARKLIGHT_DAEMON": "off",
            "MARKLIGHT_MODEL_NAME": "fake",
        }
        write(self.docs, BEFORE)
        self.data.mkdir()
        shutil.copytree(self.data, root / "empty")
        self.archive = root / "archive"
        for arguments in (("index", "DOCS"), ("export", "ARCHIVE", "DOCS")):
            status, output = self.in_child(lambda given=arguments: self.execute(given))  # type: ignore[misc]
            assert status == 0, output
        shutil.copytree(self.data, root / "indexed")
        (self.docs / "deep/violin.md").unlink()
        write(self.docs, AFTER)
        memory = MemoryEngine()
        with library(self.docs, engine=f"file:{root / 'other'}") as built:
            built.__dict__["engine"] = memory
            built.index()
        self.expected = without_generation(content(memory_snapshot(memory.state)))

    def execute(self, arguments: tuple[str, ...]) -> int:
        names = {
            "DOCS": str(self.docs),
            "OUT": str(self.data / "out"),
            "ARCHIVE": str(self.archive),
        }
        return run([names.get(argument, argument) for argument in arguments])

    def restore(self, command: str) -> None:
        """Put back the data with which a command begins."""
        shutil.rmtree(self.data)
        shutil.copytree(self.root / ("empty" if command in NEW_INDEX else "indexed"), self.data)

    def in_child(self, work: Callable[[], int]) -> tuple[int, str]:
        """Run a function in a fork; return its wait status and its output."""
        output = self.root / "output"

        def redirected() -> None:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

        status = os.waitpid(in_child(redirected), 0)[1]
        return status, output.read_text(errors="replace")

    def check_index(self) -> int:
        """Index, check and compare with the expected content; 0 if all is well."""
        with library(self.docs) as opened:
            opened.search("river", min_confidence=0.0)
            opened.index()
            findings = [finding for finding in opened.engine.check() if "leftover" not in finding]
            assert not findings, findings
            assert opened.engine.check() == []
            with opened.engine.snapshot() as snapshot:
                found = without_generation(content(snapshot))
            assert found == self.expected, f"{found}\n{self.expected}"
        return 0


class Shim:
    """Functions of the preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self.count: Callable[[int], int] = self._library.shim_count
        self.count.restype = ctypes.c_long

    def arm(self, root: Path, case: Case | None = None) -> None:
        kind = KINDS.index(case.kind) if case and case.kind else -1
        number, error = (case.number, case.error) if case else (0, 0)
        self._library.shim_set(
            os.fsencode(root), kind, ctypes.c_long(number), error, bool(case and case.persistent)
        )

    def log(self, file: Path | None) -> None:
        self._library.shim_log(os.fsencode(file) if file else None)


def cases(command: str, counts: dict[str, int]) -> Iterator[Case]:
    """Yield every case of a command, given how many calls of each kind it makes."""
    for kind, count in counts.items():
        for number in range(1, count + 1):
            yield Case(command, kind, number, errno.EIO)
            if kind in ("open", "write", "fsync", "mkdir", "truncate", "rename"):
                yield Case(command, kind, number, errno.ENOSPC)
            if kind in PERSISTENT:
                yield Case(command, kind, number, errno.ENOSPC, persistent=True)


def count_calls(setting: Setting, shim: Shim, command: str) -> dict[str, int]:
    """Run a command without a fault; return how many calls of each kind it makes below the folders."""
    setting.restore(command)
    report = setting.root / "counts"

    def work() -> int:
        shim.arm(setting.root)
        code = setting.execute(COMMANDS[command])
        counts = [shim.count(number) for number in range(len(KINDS))]
        shim.arm(Path("/nowhere"))
        report.write_text(json.dumps(counts))
        return code

    status, output = setting.in_child(work)
    assert status == 0, f"{command} without a fault: {output}"
    return dict(zip(KINDS, json.loads(report.read_text()), strict=True))


def problem_of(status: int, output: str) -> str:
    """Return what is wrong with the end of a command; empty if it is a success or a clear error."""
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}: {output[-500:]}"
    if "Traceback" in output or "bug in Marklight" in output or "panicked at" in output:
        return output[-3000:]
    if os.waitstatus_to_exitcode(status) not in (0, 1, 2, 3):
        return f"exit code {os.waitstatus_to_exitcode(status)}: {output[-500:]}"
    if status and not output.strip():
        return "no message"
    return ""


def try_case(setting: Setting, shim: Shim, case: Case) -> str:
    """Run a command with a fault, then check the index; return what is wrong."""
    setting.restore(case.command)

    def work() -> int:
        shim.arm(setting.root, case)
        code = setting.execute(COMMANDS[case.command])
        shim.arm(Path("/nowhere"))
        return code

    status, output = setting.in_child(work)
    return problem_of(status, output) or check(setting)


def check(setting: Setting) -> str:
    status, output = setting.in_child(setting.check_index)
    return "" if status == 0 else f"the index afterwards: {output[-3000:]}"


# Loss of power

LOSSES = (
    "only names that were synced",
    "all names, no unsynced data",
    "all names, parts of the unsynced data",
)
RECORD = struct.Struct("<cQqII")


class Change(NamedTuple):
    """A change of a file, as the shim logs it."""

    what: str
    inode: int
    offset: int
    path: str
    data: bytes

    def apply(self, content: bytearray) -> None:
        """Write into the content of a file, or truncate it."""
        end = self.offset + len(self.data)
        if self.what == "t":
            del content[end:]
        content.extend(bytes(max(0, end - len(content))))
        content[self.offset : end] = self.data


def changes(log: Path) -> list[Change]:
    data, start, found = log.read_bytes(), 0, list[Change]()
    while start < len(data):
        what, inode, offset, path_size, size = RECORD.unpack_from(data, start)
        start += RECORD.size
        path = os.fsdecode(data[start : start + path_size])
        start += path_size
        found.append(Change(what.decode(), inode, offset, path, data[start : start + size]))
        start += size
    return found


@dataclass
class Disk:
    """Content of files by inode, and names of files; both as written and as they survive a loss of power."""

    folders: list[str] = field(default_factory=list)
    written: dict[int, bytearray] = field(default_factory=dict)
    synced: dict[int, bytes] = field(default_factory=dict)
    unsynced: dict[int, list[Change]] = field(default_factory=dict)
    """Changes of each file since it was synced."""
    names: dict[str, int] = field(default_factory=dict)
    synced_names: dict[str, int] = field(default_factory=dict)

    @classmethod
    def at(cls, folder: Path) -> Disk:
        """Return the content of a folder, all of which survives."""
        disk = cls()
        for path in sorted(folder.rglob("*")):
            if path.is_dir():
                disk.folders.append(str(path))
            else:
                disk.names[str(path)] = number = path.stat().st_ino
                disk.written[number] = bytearray(path.read_bytes())
        disk.synced = {number: bytes(data) for number, data in disk.written.items()}
        disk.synced_names = dict(disk.names)
        return disk

    def apply(self, change: Change) -> None:
        path, data = change.path, self.written.get(change.inode, bytearray())
        if change.what == "o":
            if self.names.get(path) != change.inode:
                self.names[path], self.written[change.inode] = change.inode, bytearray()
                self.synced.pop(change.inode, None)
        elif change.what in "wt":
            change.apply(data)
            self.unsynced.setdefault(change.inode, []).append(change)
        elif change.what == "s":
            if change.inode in self.written:
                self.synced[change.inode] = bytes(data)
                self.unsynced.pop(change.inode, None)
            else:  # a folder
                below = {
                    name: number
                    for name, number in self.names.items()
                    if os.path.dirname(name) == path
                }
                others = {
                    name: number
                    for name, number in self.synced_names.items()
                    if os.path.dirname(name) != path
                }
                self.synced_names = others | below
        elif change.what == "d":
            self.folders.append(path)
        elif change.what == "u":
            self.names.pop(path, None)
            self.folders = [folder for folder in self.folders if folder != path]
        elif change.what in "rl" and path in self.names:
            self.names[os.fsdecode(change.data)] = self.names[path]
            if change.what == "r":
                del self.names[path]

    def survivors(self, loss: int, chance: random.Random) -> dict[str, bytes]:
        """Return the files after a loss of power. Data that was never synced is lost, or a part of it."""
        names = dict(self.synced_names) if loss == 0 else self.names
        files = {}
        for name, number in names.items():
            data = bytearray(self.synced.get(number, b""))
            for change in self.unsynced.get(number, ()) if loss == 2 else ():
                if chance.random() < 0.5:
                    change.apply(data)
            if not name.endswith("-shm"):  # memory of running processes
                files[name] = bytes(data)
        return files


def lose_power(
    setting: Setting, shim: Shim, command: str, part: int, of: int
) -> Iterator[tuple[Case, str]]:
    """Log a command, then check the index that a loss of power after each change would leave."""
    setting.restore(command)
    before, log = Disk.at(setting.data), setting.root / "log"

    def work() -> int:
        shim.arm(setting.data)
        shim.log(log)
        code = setting.execute(COMMANDS[command])
        shim.log(None)
        return code

    status, output = setting.in_child(work)
    assert status == 0, output
    for number, change in enumerate(changes(log), 1):
        before.apply(change)
        for loss in range(len(LOSSES)):
            if (number * len(LOSSES) + loss) % of != part:
                continue
            shutil.rmtree(setting.data)
            for folder in (str(setting.data), *before.folders):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            for name, data in before.survivors(loss, random.Random(number)).items():
                os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
                Path(name).write_bytes(data)
                os.chmod(name, 0o600)
            yield Case(command, "", number, loss), check(setting)


def main(part: int, of: int, names: list[str]) -> int:
    shim, total, problems = Shim(), Counter[str](), 0
    warm_up()
    with in_memory(Path(tempfile.gettempdir())) as root:
        setting = Setting(root)
        for command in names or COMMANDS:
            counts = count_calls(setting, shim, command)
            chosen = [
                case for number, case in enumerate(cases(command, counts)) if number % of == part
            ]
            results = ((case, try_case(setting, shim, case)) for case in chosen)
            for label, found in (
                ("faults", results),
                ("losses of power", lose_power(setting, shim, command, part, of)),
            ):
                for case, problem in found:
                    total[f"{command}: {label}"] += 1
                    if problem:
                        problems += 1
                        print(f"{case}\n{problem}\n", flush=True)
    print(json.dumps({"problems": problems, **total}))
    return problems


def start(part: int, of: int, commands: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Build the library and run the cases in a process that it is loaded into."""
    with tempfile.TemporaryDirectory() as folder:
        built, source = Path(folder) / "shim.so", Path(__file__).with_name("shim.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
        return subprocess.run(
            [sys.executable, "-m", "tests.faults.every_call", str(part), str(of), *commands],
            env={
                **os.environ,
                "LD_PRELOAD": str(built),
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONHASHSEED": "0",
            },
            stdout=subprocess.PIPE,
            text=True,
        )


if __name__ == "__main__":
    part, of, *names = sys.argv[1:]
    if "LD_PRELOAD" not in os.environ:
        finished = start(int(part), int(of), tuple(names))
        print(finished.stdout, end="")
        sys.exit(finished.returncode)
    sys.exit(bool(main(int(part), int(of), names)))
