"""Measure the time of `import marklight`, `--help` and an index run without changes, against bare Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._measure import arguments, corpus, in_a_process, save
from benchmarks.indexing import stat_walk

ROUNDS = 15
PROGRAM = str(Path(sys.executable).with_name("marklight"))

IMPORT = """
import sys, time, json
began = time.perf_counter()
import marklight
took = (time.perf_counter() - began) * 1e3
heavy = [name for name in ("numpy", "onnxruntime", "tantivy", "tokenizers", "click", "sqlite3", "markdown_it") if name in sys.modules]
print(json.dumps({"ms": took, "heavy": heavy}))
"""


def measure(*command: str) -> float:
    """Return the duration of a command in milliseconds."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    arguments()
    kubernetes = corpus("kubernetes")
    with tempfile.TemporaryDirectory() as place:
        index = (
            PROGRAM,
            "index",
            str(kubernetes),
            "--set",
            f"engine=file:{place}",
            "--set",
            "model.name=fake",
        )
        measure(*index)
        rows = {
            "bare_python_ms": (sys.executable, "-c", "pass"),
            "import_click_ms": (sys.executable, "-c", "import click"),
            "help_ms": (PROGRAM, "--help"),
            "index_nothing_changed_ms": index,
        }
        times: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(ROUNDS):
            for name, command in rows.items():
                times[name].append(measure(*command))
    figures = {name: statistics.median(values) for name, values in times.items()}
    walk = statistics.median(stat_walk(kubernetes) for _ in range(9)) * 1e3
    imports = [in_a_process(IMPORT) for _ in range(ROUNDS)]
    save(
        "startup",
        {
            "import_marklight_ms": statistics.median(run["ms"] for run in imports),
            "heavy_modules": imports[0]["heavy"],
            **figures,
            "stat_walk_ms": walk,
            "help_to_import_click": figures["help_ms"] / figures["import_click_ms"],
        },
    )


if __name__ == "__main__":
    main()
