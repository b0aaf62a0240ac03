"""What the benchmarks share: where the collections are, a process of its own, and the result as JSON."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

ROOT = Path(__file__).parents[1]
SETS = (
    *("anthropic-docs", "stackfaq", "cosqa-dev", "scifact-train", "cranfield"),
    *("kubernetes-anchors", "blue-book-anchors", "fastapi-anchors"),
)
"""The development sets of questions."""


def arguments() -> list[str]:
    """Return the arguments of the command; for `--help`, print the docstring of its module and exit."""
    if "--help" in sys.argv:
        print(sys.modules["__main__"].__doc__)
        sys.exit()
    return sys.argv[1:]


def eval_root() -> Path:
    """The evaluation collections; a benchmark without them has nothing to measure."""
    folder = Path(os.environ.get("EVAL_ROOT", ROOT.parent / "shared" / "eval"))
    if not folder.is_dir():
        sys.exit(f"no evaluation collections at {folder}; name them with EVAL_ROOT")
    return folder


def corpus(name: str) -> Path:
    return eval_root() / "corpora" / name


def set_path(name: str) -> Path:
    return eval_root() / "sets" / name


def repeated(source: Path, target: Path, times: int) -> Path:
    """A collection several times under new paths, each copy with titles, and so texts, of its own."""
    for number in range(times):
        shutil.copytree(source, target / f"copy{number}", copy_function=shutil.copyfile)
        if number:
            for path in (target / f"copy{number}").rglob("*.md"):
                text = path.read_text()
                path.write_text(text.replace("title:", f"title: Copy {number}", 1))
    return target


def questions(name: str = "kubernetes-anchors") -> list[str]:
    """What people would ask that collection."""
    lines = (eval_root() / "sets" / name / "queries.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def real_index(target: Path, given: Sequence[str]) -> Path:
    """The Kubernetes pages, embedded by the default model: some minutes, or a copy of an index made before."""
    import marklight

    if given:
        shutil.copytree(given[0], target)
    with marklight.open(corpus("kubernetes"), {"engine": f"file:{target}"}) as library:
        library.index()
    return target


def real_vectors(index: Path) -> np.ndarray:
    """All vectors of an index with one model."""
    import numpy as np

    from marklight.engines.embedded.vector_files import HEADER_BYTES
    from marklight.vector_math import decode_vectors

    (path,) = (index / "vectors").glob("*.int8")
    return decode_vectors(np.fromfile(path, np.int8, offset=HEADER_BYTES).reshape(-1, 384))


def in_a_process(code: str, *arguments: str) -> Any:
    """Run code in a fresh interpreter; its last line of output is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def peak_megabytes() -> float:
    """The most memory that this process has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage also counts what the parent held when it started us.
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def result_path(name: str) -> Path:
    """Where a benchmark keeps its figures."""
    return ROOT / "benchmarks" / "results" / f"{name}.json"


def save(name: str, figures: dict[str, Any]) -> None:
    """Print the figures and keep them."""
    figures = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", **figures}
    text = json.dumps(figures, indent=2)
    print(text)
    result_path(name).write_text(text + "\n")
