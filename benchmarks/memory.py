"""Peak memory of indexing, at one and ten times the Kubernetes documentation.

Embedding everything with the real model takes minutes at 1x and hours at 10x, so the real model embeds
for the same time at both sizes, and the fake model embeds all passages.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks._measure import corpus, in_a_process, repeated, save

REAL = """
import sys, json, time
import marklight
from benchmarks._measure import peak_megabytes
with marklight.open(sys.argv[1], {"engine": "file:" + sys.argv[2]}) as library:
    with library.engine.writing(0):
        library.ingest.index_text(library.ingest.compare())
        after_text = peak_megabytes()
        library.ingest.embed_missing(until=time.monotonic() + float(sys.argv[3]))
    counts = library.ingest.counts()
print(json.dumps({"text_mb": after_text, "peak_mb": peak_megabytes(), "chunks": counts.chunks, "embedded": counts.embedded}))
"""

FAKE = """
import sys, json
import marklight
from benchmarks._measure import peak_megabytes
with marklight.open(sys.argv[1], {"engine": "file:" + sys.argv[2], "model": {"name": "fake"}}) as library:
    report = library.index()
print(json.dumps({"peak_mb": peak_megabytes(), "chunks": report.index.chunks, "embedded": report.index.embedded}))
"""


def main() -> None:
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for times in (1, 10):
            folder = repeated(corpus("kubernetes"), Path(scratch) / f"x{times}", times)
            figures[f"real_model_x{times}"] = in_a_process(
                REAL, str(folder), f"{scratch}/real{times}", "45"
            )
            figures[f"fake_model_x{times}"] = in_a_process(
                FAKE, str(folder), f"{scratch}/fake{times}"
            )
    for kind in ("real", "fake"):
        one, ten = figures[f"{kind}_model_x1"], figures[f"{kind}_model_x10"]
        figures[f"{kind}_ratio_10x_to_1x"] = ten["peak_mb"] / one["peak_mb"]
    save("memory", figures)


if __name__ == "__main__":
    main()
