"""Print the size of the source tree: modules, lines, settings, protocols, commands, documents, and what `marklight search` executes.

Run it as `.venv/bin/python scripts/structure.py`. It indexes docs/ in a temporary folder with the
default model and searches it once in a fresh process, without a daemon.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "marklight"
QUERY = "how are near duplicates removed"


def line_counts() -> dict[str, int]:
    """Return the number of lines of each module."""
    return {
        str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines())
        for path in sorted(SOURCE.rglob("*.py"))
    }


def protocol_sizes() -> dict[str, int]:
    """Return the number of own methods and properties of each protocol."""
    return {
        node.name: sum(isinstance(part, ast.FunctionDef) for part in node.body)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and _is_protocol(node)
    }


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def imported_once() -> int:
    """Return the number of modules that exactly one other module imports."""
    modules = {_module_name(path): path for path in SOURCE.rglob("*.py")}
    importers: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for target in _imports(ast.parse(path.read_text("utf-8"))):
            if target in importers and target != name:
                importers[target].add(name)
    return sum(len(found) == 1 for found in importers.values())


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def search_trace() -> dict[str, list[str]]:
    """Search once in a fresh process; return the modules it loaded and the files it executed, in order."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "MARKLIGHT_DATA_DIR": f"{folder}/data",
            "MARKLIGHT_DAEMON": "off",
        }
        notes = Path(folder, "notes")
        notes.mkdir()
        for page in (ROOT / "docs").glob("*.md"):
            (notes / page.name).write_bytes(page.read_bytes())
        command = [sys.executable, "-m", "marklight", "index", str(notes)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        traced = [sys.executable, __file__, "--trace", str(notes), f"{folder}/trace.json"]
        subprocess.run(traced, env=environment, check=True, capture_output=True)
        return dict(json.loads(Path(folder, "trace.json").read_text("utf-8")))


def _trace(notes: str, target: str) -> None:
    """Run the console script in this process under a profiler that records each change of file."""
    import threading

    calls: list[str] = []
    prefix = str(SOURCE)

    def record(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(prefix) and not _defines(frame):
            calls.append(name)

    threading.setprofile(record)
    sys.setprofile(record)
    from marklight.surfaces.cli import main

    sys.argv = ["marklight", "search", QUERY, notes]
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "marklight")
        Path(target).write_text(json.dumps({"loaded": loaded, "calls": calls}), "utf-8")


def _defines(frame: FrameType | None) -> bool:
    """Return whether a frame is the body of a module or class, or is called by one while it is defined."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" or code.co_flags & 0x2 == 0:
            return True
        frame = frame.f_back
        if frame is not None and not frame.f_code.co_filename.startswith(str(SOURCE)):
            return False
    return False


def setting_count() -> int:
    """Return the number of settings."""
    from marklight.library.configuration import SCHEMA
    from marklight.settings import known_keys

    return len(known_keys(SCHEMA))


def command_count() -> int:
    """Return the number of commands that `marklight --help` describes; it names the others on one line."""
    from marklight.surfaces.cli import SECTIONS

    return sum(map(len, SECTIONS.values()))


def main() -> None:
    """Print the figures; with `-v` also the files that were executed."""
    lines = line_counts()
    counts = list(lines.values())
    protocols = protocol_sizes()
    largest = max(protocols, key=lambda name: protocols[name])
    trace = search_trace()
    executed = list(dict.fromkeys(trace["calls"]))
    server = sum(count for name, count in lines.items() if name.startswith("engines/server/"))
    switches = sum(
        os.path.dirname(before) != os.path.dirname(after)
        for before, after in itertools.pairwise(executed)
    )
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *(ROOT / "skills").rglob("*.md")]
    print(f"lines in src: {sum(counts)}, without the server engines {sum(counts) - server}")
    print(
        f"modules: {len(lines)}, median {statistics.median(counts):.0f} lines, largest {max(counts)},"
        f" {sum(count < 60 for count in counts)} under 60 lines, {imported_once()} imported by one other"
    )
    print(
        f"settings: {setting_count()}, protocols: {len(protocols)} (largest: {largest},"
        f" {protocols[largest]} methods), commands in --help: {command_count()}"
    )
    print(
        f"`marklight search` executes {len(executed)} files, loads {len(trace['loaded'])} own modules,"
        f" switches folders {switches} times"
    )
    print(
        f"ARCHITECTURE.md: {(ROOT / 'ARCHITECTURE.md').stat().st_size / 1000:.0f} kB,"
        f" all documents: {sum(page.stat().st_size for page in pages) / 1000:.0f} kB"
    )
    if "-v" in sys.argv:
        print("", *(os.path.relpath(name, SOURCE) for name in executed), sep="\n  ")
        print("", *trace["loaded"], sep="\n  ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trace"]:
        _trace(*sys.argv[2:4])
    else:
        main()
