"""Cost of detecting boilerplate: CPU time of a first run with and without it, and of one changed file in libraries of two sizes.

`python -m benchmarks.boilerplate [NOTES]`. The notes are generated from a template, with the fake model. `DOCUMENTS` real ones
are indexed with the fake and with the default model. Ratios within one run: other work on the machine changes seconds, but
hardly their ratio.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import marklight
from benchmarks._measure import eval_root, save
from marklight.models.record import DEFAULT

NOTES = 1_000
DOCUMENTS = {"keps": 100, "kubernetes": 100, "tldr": 200}
ROUNDS, EDITS = 3, 7
FOOTER = "\n## This note on the web\n\n[Edit it](https://example.com/{0}) | [Copy it](raw/{0})\n\n- [ ] Reviewed by a second person\n"


def note(chance: random.Random, number: int) -> str:
    """Return a note: a title, three sections of its own, and the footer of the template."""
    words = [f"{chance.getrandbits(30):x}" for _ in range(200)]
    parts = [
        f"## {name}\n\n{' '.join(chance.choices(words, k=90))}\n"
        for name in ("Summary", "Details", "Sources")
    ]
    return f"# Note {number}\n\n" + "\n".join(parts) + FOOTER.format(number)


def written(folder: Path, count: int) -> Path:
    """Write so many notes."""
    chance = random.Random(count)
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.md").write_text(note(chance, number))
    return folder


def sampled(name: str, count: int, folder: Path) -> Path:
    """Copy so many documents of a collection, evenly chosen."""
    paths = sorted((eval_root() / "corpora" / name).rglob("*.md"))
    folder.mkdir()
    for number, path in enumerate(paths[:: max(1, len(paths) // count)][:count]):
        (folder / f"{number}-{path.name}").write_bytes(path.read_bytes())
    return folder


def opened(notes: Path, index: Path, boilerplate: bool, model: str = "fake") -> marklight.Library:
    """Open a library with an index elsewhere."""
    settings: dict[str, Any] = {"engine": f"file:{index}", "model": {"name": model}}
    return marklight.open(notes, {**settings, "chunk": {"boilerplate": boilerplate}})


def first_run(notes: Path, index: Path, boilerplate: bool, model: str = "fake") -> float:
    """Return the CPU seconds of a first run; the model is loaded before."""
    with opened(notes, index, boilerplate, model) as library:
        if library.models.embedder:
            library.models.embedder.embed_passages(["Load the model."])
        start = time.process_time()
        library.index()
        return time.process_time() - start


def real_ratios(folder: Path, model: str, rounds: int) -> dict[str, float]:
    """Return the median ratio of first runs with and without detection, by collection."""
    ratios = {}
    for name, count in DOCUMENTS.items():
        place = folder / f"{name}-{model}"
        notes = sampled(name, count, place)
        pairs = [
            [first_run(notes, folder / f"{place.name}-{at}{on}", on, model) for on in (False, True)]
            for at in range(rounds)
        ]
        ratios[name] = round(median(on / off for off, on in pairs), 3)
        print(name, model, ratios[name], pairs, flush=True)
    return ratios


def changed_file(notes: Path, index: Path) -> float:
    """Return the median CPU seconds in which a changed note is chunked and committed, without the scan of the disk."""
    chance, times = random.Random(1), []
    with opened(notes, index, True) as library:
        library.index()
        for number in range(EDITS):
            (notes / f"{number}.md").write_text(note(chance, number))
            diff = library.ingest.compare()
            start = time.process_time()
            with library.engine.writing(60):
                library.ingest.index_text(diff)
            times.append(time.process_time() - start)
    return median(times)


def main() -> None:
    """Measure and save the ratios."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NOTES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        notes, few = written(folder / "notes", count), written(folder / "few", count // 10)
        pairs = [
            [first_run(notes, folder / f"index{at}{on}", on) for on in (False, True)]
            for at in range(ROUNDS)
        ]
        real = {
            "fake": real_ratios(folder, "fake", ROUNDS),
            "default": real_ratios(folder, DEFAULT, 1),
        }
        large, small = changed_file(notes, folder / "large"), changed_file(few, folder / "small")
    figures = {
        "notes": count,
        "first_run_ratio": round(median(on / off for off, on in pairs), 3),
        "first_run_ratio_of_real_documents": real,
        "changed_file_ratio_of_ten_times_the_notes": round(large / small, 2),
    }
    save("boilerplate", figures)


if __name__ == "__main__":
    main()
