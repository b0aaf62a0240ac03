"""Compare the visible text of every document of the corpora with that of markdown-it's own HTML.

python -m benchmarks.rendering

Prints the number of documents, of intended differences by their reason, and every other difference.
"""

from __future__ import annotations

from collections import Counter

from tests.ingest.visible_text import differences, read_document

from benchmarks._measure import eval_root, save

SHOWN = 200
"""Unexplained differences that are printed."""


def main() -> None:
    root = eval_root() / "corpora"
    results = {}
    printed = 0
    for corpus in sorted(path for path in root.iterdir() if path.is_dir()):
        documents, different, reasons = 0, 0, Counter[str]()
        for path in sorted(corpus.rglob("*.[mM][dD]")):
            documents += 1
            found = list(differences(read_document(path)))
            different += bool(found)
            reasons.update(reason or "unexplained" for _, reason in found)
            for difference in (each for each, reason in found if not reason):
                printed += 1
                if printed <= SHOWN:
                    print(f"  {path.relative_to(root)}: {difference[:300]}")
        results[corpus.name] = {"documents": documents, "different": different, **reasons}
        print(corpus.name, results[corpus.name], flush=True)
    save("rendering", results)


if __name__ == "__main__":
    main()
