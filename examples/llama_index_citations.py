"""Ask this project's own documentation through LlamaIndex; every passage names the file and lines it is from.

    pip install "marklight[llama-index]"
    python examples/llama_index_citations.py "how is the index kept up to date"

It runs without a network and without a language model: it shows what a query engine would be given.
"""

from __future__ import annotations

import sys
from pathlib import Path

from llama_index.core.schema import MetadataMode

import marklight
from marklight.adapters.llama_index import MarklightRetriever

DOCS = Path(__file__).parents[1] / "docs"


def main(question: str) -> None:
    """Open the library, retrieve, show."""
    with marklight.open(DOCS) as library:
        for found in MarklightRetriever(library, limit=2).retrieve(question):
            print(f"{found.score:.2f}")
            print(found.node.get_content(MetadataMode.LLM)[:300])
            print()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "how is the index kept up to date")
