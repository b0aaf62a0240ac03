"""The scheduler: edits documents, lets processes run in turns, injects faults, and checks every result.

`python -m tests.simulation.world SEED` replays one seed and prints its steps.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from marklight.model import Batch, Counts, DocumentId
from tests.faults.committing import in_memory
from tests.making import library
from tests.oracle import MemoryEngine
from tests.oracle.engine import memory_snapshot
from tests.oracle.state import State
from tests.simulation.process import FAULTS, KILL, UNLIMITED, WORDS, Clock, Process, content

LOADED = (np, tantivy)  # before the first fork
PATHS = ("a.md", "b.md", "guide/c.md", "guide/d.md", "guide/deep/e.md", "notes/f.md")
FOLDERS = ("guide", "notes", "moved", "guide/deep")
TICK_NS, SECOND_NS = 4_000_000, 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS + 1
STEPS = 45
MAX_CALLS = 3000
OPERATIONS = {
    "search": 14,
    "index": 4,
    "dump": 4,
    "watch": 4,
    "embed": 2,
    "check": 1,
    "clean": 1,
    "close": 1,
}
"""Operations of a process, with how often each is chosen."""
EXCUSES = (
    "Another process is indexing",
    "Another process is writing",
    "could not be updated",
    "before the last change",
    "not indexed yet",
    "for changes in",
    "could not be embedded",
    "cannot be listed",
    "Scanning files",
    "Check the disk",
    "Free some space",
)
"""Parts of notices by which an answer says that it may lack changes."""
LEFTOVERS = ("Deleted leftover", "The lexical index was rebuilt")
"""Findings of a check after kills and faults; any other finding is damage."""


class Violation(AssertionError):
    """Raised where a guarantee does not hold."""


@dataclass
class History:
    """Expected content of each generation, from the batches of all commits, and of the disk at each step."""

    disk: list[Mapping[str, str]] = field(default_factory=lambda: [{}])
    changes: dict[int, object] = field(default_factory=dict)
    """By generation: what the last attempt to make it changes. One that was made is never attempted again."""
    seen: dict[int, State] = field(default_factory=lambda: {0: State()})
    acknowledged: int = 0

    def attempt(self, base: int, change: object) -> None:
        if base + 1 in self.seen and base + 1 > 0:
            raise Violation(f"generation {base + 1} was committed, seen and is written again")
        self.changes[base + 1] = change

    def state(self, generation: int) -> State:
        """Return the expected content of a generation that a process has seen."""
        if generation not in self.seen:
            if generation not in self.changes:
                raise Violation(f"generation {generation} was never written")
            before = self.state(generation - 1)
            self.seen[generation] = changed(before, self.changes[generation])
        return self.seen[generation]

    def versions(self, path: str, since: int) -> set[str]:
        """Return the texts that a file had from a step on."""
        return {disk[path] for disk in self.disk[since:] if path in disk}


def changed(state: State, change: object) -> State:
    """Return the state after a batch, after cleaning (a tuple of models) or after discarding a model (its name)."""
    if isinstance(change, Batch):
        return state.after(change)
    if isinstance(change, str):
        kept = {name: rows for name, rows in state.vectors.items() if name != change}
        return replace(state, generation=state.generation + 1, vectors=kept)
    memory = MemoryEngine(state)
    memory.clean(change)  # type: ignore[arg-type]
    return memory.state


class World:
    """A folder of documents, processes that share its index, and what is known about both."""

    def __init__(self, seed: int, root: Path, trace: bool = False) -> None:
        self.seed, self.chance, self.trace = seed, random.Random(seed), trace
        self.folder, self.index = root / "docs", root / "index"
        self.folder.mkdir()
        self.coarse = self.chance.random() < 0.2  # a file system with time stamps of whole seconds
        self.clock, self.epoch = Clock(START_NS), 0
        self.history, self.counts = History(), Counter[str]()
        self.processes: dict[int, Process] = {}
        self.forks = self.version = 0
        self.faults = self.chance.random() < 0.7
        for _ in range(4):
            self.edit()

    def run(self) -> None:
        """Take all steps, then compare the index with a new one of the same documents."""
        try:
            if self.chance.random() < 0.7:
                self.complete(self.fork(0), "index", False)
            for _ in range(STEPS):
                kind = self.chance.random()
                if kind < 0.25:
                    self.edit()
                elif kind < 0.35:
                    self.let_time_pass()
                else:
                    self.step(self.chance.randrange(3))
            self.finish()
        finally:
            for process in self.processes.values():
                process.kill()

    # The disk

    def edit(self) -> None:
        """Change a document or a folder, and note the content of the disk."""
        disk, existing = dict(self.history.disk[-1]), sorted(self.history.disk[-1])
        actions = ["write"] + ["write", "same size", "move", "delete", "move folder"] * bool(
            existing
        )
        action = self.chance.choice(actions)
        path = self.chance.choice(existing or PATHS)
        if action == "write":
            path = self.chance.choice(PATHS)
            self.write(path, self.text())
        elif action == "same size":
            text = disk[path]
            old = next(word for word in text.split() if word.startswith("version"))
            self.write(path, text.replace(old, self.next_version()))
        elif action == "delete":
            (self.folder / path).unlink()
            self.stamp(path)
        elif action == "move":
            target = self.chance.choice(PATHS)
            (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.folder / path, self.folder / target)
            self.stamp(path, target)
        else:
            source, target = self.chance.sample(FOLDERS, 2)
            inside = target.startswith(f"{source}/")
            if inside or not (self.folder / source).is_dir() or (self.folder / target).exists():
                return
            (self.folder / target).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.folder / source, self.folder / target)
            self.stamp(source, target)
        self.history.disk.append(self.read_disk())
        self.log(action, path)

    def write(self, path: str, text: str) -> None:
        """Write a document, in place or by replacing the file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(".draft") if self.chance.random() < 0.5 else file
        draft.write_text(text)
        os.replace(draft, file)
        self.stamp(path)

    def stamp(self, *paths: str) -> None:
        """Give files and the folders above them the time of the simulation, as coarse as the file system has it."""
        step = SECOND_NS if self.coarse else TICK_NS
        # After a step back, stamps differ from all earlier ones, as they do by nanoseconds on a real system.
        stamp = self.clock.now_ns // step * step + (0 if self.coarse else 1 + self.epoch)
        for path in paths:
            place = self.folder / path
            while place != self.folder.parent:
                if place.exists():
                    os.utime(place, ns=(stamp, stamp))
                place = place.parent

    def read_disk(self) -> dict[str, str]:
        return {
            file.relative_to(self.folder).as_posix(): file.read_text()
            for file in sorted(self.folder.rglob("*.md"))
        }

    def next_version(self) -> str:
        self.version += 1
        return f"version{self.version:04d}"

    def text(self) -> str:
        """Return a document whose passages all contain the number of its version."""
        version = self.next_version()
        parts = [
            f"## Part {part}\n\n{version} {' '.join(self.chance.choices(WORDS, k=9))}."
            f" See [[{Path(self.chance.choice(PATHS)).stem}]].\n"
            for part in range(self.chance.randint(1, 3))
        ]
        return f"# Page\n\n{version} begins.\n\n" + "\n".join(parts)

    def let_time_pass(self) -> None:
        steps = [1_000, TICK_NS, 30_000_000, 3 * SECOND_NS, 70 * SECOND_NS]
        if not self.coarse:
            steps += [-SECOND_NS, -3600 * SECOND_NS]
        step = self.chance.choice(steps)
        self.epoch += step < 0
        self.clock.advance(step)
        self.log("clock", step / SECOND_NS)

    # Processes

    def step(self, slot: int) -> None:
        """Let a process run a number of calls; start it, or its next operation, where there is none."""
        process = self.processes.get(slot)
        if process is None:
            process = self.fork(slot)
        if not process.operation:
            operation = self.chance.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
            arguments: tuple[object, ...] = ()
            if operation == "index":
                arguments = (self.chance.random() < 0.1,)
            elif operation == "search":
                arguments = self.query()
            self.start(process, operation, *arguments)
        self.clock.advance(self.chance.choice([0, 10_000, 2_000_000]))
        calls, fault = int(MAX_CALLS ** self.chance.random()), 0
        if self.faults and self.chance.random() < 0.12:
            fault = self.chance.choice(FAULTS)
        self.resume(slot, process, calls, fault)

    def fork(self, slot: int) -> Process:
        self.forks += 1
        self.counts["processes"] += 1
        seed = f"{self.seed}-{self.forks}"
        process = Process(slot, seed, self.clock, self.folder, self.index)
        self.processes[slot] = process
        return process

    def complete(self, process: Process, operation: str, *arguments: object) -> Any:
        """Execute an operation without a stop; return its result."""
        self.start(process, operation, *arguments)
        return self.resume(process.number, process, UNLIMITED)

    def start(self, process: Process, operation: str, *arguments: object) -> None:
        process.started = (len(self.history.disk) - 1, self.history.acknowledged, arguments)
        process.start(operation, *arguments)
        self.counts[operation] += 1
        self.log(f"process {process.number} starts", operation, *arguments)

    def query(self) -> tuple[str, str, bool]:
        """Return a word, or the version of a current or recent document, for a keyword or hybrid search with or without a refresh."""
        texts = list(self.chance.choice(self.history.disk[-4:]).values())
        word = self.chance.choice(WORDS)
        if texts and self.chance.random() < 0.7:
            word = self.chance.choice(texts).split()[2]
        return word, self.chance.choice(["keyword", "hybrid"]), self.chance.random() < 0.7

    def resume(self, slot: int, process: Process, calls: int, fault: int = 0) -> Any:
        """Let a process run, and check what it reports; return the result of an operation that is done."""
        self.counts["faults"] += fault > 0
        for kind, *report in process.resume(calls, fault):
            self.log(f"process {slot}", kind, *(report if kind in ("stopped", "failed") else ()))
            if kind == "intent":
                self.history.attempt(*report)
            elif kind == "committed":
                self.history.acknowledged = max(self.history.acknowledged, report[0])
                self.counts["commits"] += 1
            elif kind == "killed":
                if fault != KILL:
                    raise Violation(f"{process.operation} ended its process")
                self.counts["kills"] += 1
                del self.processes[slot]
            elif kind in ("done", "failed"):
                self.check(process, kind, *report)
                process.operation = ""
                return report[0] if kind == "done" else None
        return None

    # Checks

    def check(self, process: Process, kind: str, *report: Any) -> None:
        since, acknowledged, arguments = process.started
        if kind == "failed":
            reason, message = report
            if reason != "busy" and (reason != "clear" or not process.faulty):
                raise Violation(f"{process.operation} failed: {message}")
        elif process.operation == "search":
            self.check_search(process, since, acknowledged, arguments, *report[0])
        elif process.operation == "dump":
            generation, found = report[0]
            self.check_generation(generation, acknowledged)
            expected = content(memory_snapshot(self.history.state(generation)))
            compare(found, expected, f"generation {generation}")
        elif process.operation == "check":
            damage = [finding for finding in report[0] if not finding.startswith(LEFTOVERS)]
            if damage and not self.counts["faults"] + self.counts["kills"]:
                raise Violation(f"damage was found: {damage}")

    def check_generation(self, generation: int, acknowledged: int) -> None:
        if generation < acknowledged:
            raise Violation(f"generation {acknowledged} was committed, {generation} is there")

    def check_search(
        self,
        process: Process,
        since: int,
        acknowledged: int,
        arguments: tuple[str, str, bool],
        generation: int,
        hits: list[tuple[DocumentId, str]],
        notices: list[str],
    ) -> None:
        word, _, refresh = arguments
        self.check_generation(generation, acknowledged)
        state = self.history.state(generation)
        excused = any(excuse in notice for notice in notices for excuse in EXCUSES)
        self.counts["answers with a notice"] += excused
        for id, text in hits:
            versions = self.history.versions(id.path, since)
            if not versions:
                raise Violation(f"{id.path} was deleted before the search began")
            entry = state.entries.get(id)
            if entry is None or text not in {chunk.text for chunk in entry.chunks}:
                raise Violation(f"{text!r} of {id.path} is not in generation {generation}")
            if refresh and not excused and not any(text in version for version in versions):
                raise Violation(f"outdated text of {id.path} without a notice: {text!r}; {notices}")
        if refresh and not excused and not process.faulty and word.startswith("version"):
            found = {id.path for id, text in hits if word in text}
            disks = self.history.disk[since:]
            for path in disks[0]:
                if all(word in disk.get(path, "") for disk in disks) and path not in found:
                    raise Violation(f"{word} of {path} is not found; {notices}")

    def finish(self) -> None:
        """End all processes, index once more, and compare with an index that is built at once."""
        for process in self.processes.values():
            process.kill()
        self.processes.clear()
        last = self.fork(0)
        self.complete(last, "check")
        self.complete(last, "index", False)
        findings = self.complete(last, "check")
        generation, found = self.complete(last, "dump")
        if findings:
            raise Violation(f"after indexing, a check finds {findings}")
        if {
            id.path: entry.document.text
            for id, entry in self.history.state(generation).entries.items()
        } != (self.history.disk[-1]):
            raise Violation("the index does not equal the disk")
        compare(without_generation(found), without_generation(self.rebuilt()), "a rebuild")

    def rebuilt(self) -> object:
        """Return the content of a new index of the documents, in the engine in memory."""
        memory = MemoryEngine()
        with library(self.folder, engine=f"file:{self.index}-rebuilt") as built:
            built.__dict__["engine"] = memory
            built.index()
        return content(memory_snapshot(memory.state))

    def log(self, *words: object) -> None:
        if self.trace:
            print(*words)


def compare(found: object, expected: object, what: str) -> None:
    """Raise a violation that names the first part that differs."""
    names = ("generation", "counts", "documents", "graph", "pending", "lexical index", "vectors")
    for name, left, right in zip(names, found, expected, strict=True):  # type: ignore[call-overload]
        if left != right:
            raise Violation(f"{name} differ from {what}:\n{left}\n{right}")


def without_generation(found: Any) -> object:
    _, counts, documents, graph, *rest = found
    assert isinstance(counts, Counts)
    return 0, replace(counts, generation=0), documents, graph, *rest


def simulate(seed: int, trace: bool = False) -> Counter[str]:
    """Run one seed; return the counts of what happened."""
    with in_memory(Path(tempfile.gettempdir())) as root:
        os.environ["MARKLIGHT_DATA_DIR"] = str(root / "data")
        world = World(seed, root, trace)
        try:
            world.run()
        except Violation as violation:
            command = f"python -m tests.simulation.world {seed}"
            raise Violation(f"seed {seed}: {violation}\nReplay: {command}") from violation
        return world.counts


def runs(seeds: Iterable[int], trace: bool = False) -> Iterator[tuple[int, Counter[str] | str]]:
    """Run each seed in a new fork of this process, so that none depends on what others have cached.

    Yields the counts of each, or the message about a violation.
    """
    warm_up()
    for seed in seeds:
        receiver, sender = Pipe(duplex=False)
        child = os.fork()
        if not child:
            try:
                sender.send(simulate(seed, trace))
            except Violation as violation:
                sender.send(str(violation))
            except BaseException:
                sender.send(f"seed {seed}: {traceback.format_exc()}")
            finally:
                os._exit(0)
        sender.close()
        yield seed, receiver.recv()
        receiver.close()
        os.waitpid(child, 0)


def warm_up() -> None:
    """Import and compile what every process needs, without the lexical index: its threads would not survive a fork."""
    with in_memory(Path(tempfile.gettempdir())) as root:
        (root / "docs").mkdir()
        (root / "docs" / "a.md").write_text("# A\n\nriver castle [[b]]\n")
        with library(root / "docs", engine=f"file:{root / 'index'}") as warm:
            with warm.engine.writing(1):
                warm.engine.commit(Batch(manifest={"warm": "yes"}))
            warm.engine.close()
            warm.__dict__["engine"] = MemoryEngine()
            warm.index()
            warm.search("river", min_confidence=0.0)


def main(first: int, last: int) -> int:
    """Run seeds; print the counts and the violations, and return the number of the latter."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of a run
        command = [sys.executable, "-m", "tests.simulation.world", str(first), str(last)]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    total, violations = Counter[str](), 0
    for _, result in runs(range(first, last + 1), trace=first == last):
        if isinstance(result, str):
            print(result, flush=True)
            violations += 1
        else:
            total += result
    print(json.dumps({"seeds": last - first + 1, "violations": violations, **total}))
    return violations


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[-1]))))
