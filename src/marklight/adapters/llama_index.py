"""A retriever for LlamaIndex: `pip install marklight[llama-index]`."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from marklight.adapters import citations
from marklight.library import Library

TOLD = ("source", "title")
"""What a language model reads of a passage beside its text: enough to cite it."""


class MarklightRetriever(BaseRetriever):
    """Passages of a library, best first, each with where it stands and how likely it answers."""

    def __init__(self, library: Library, **options: Any) -> None:
        """The options are arguments of `library.search`, such as limit, mode, tag or min_confidence."""
        super().__init__()
        self.library = library
        self.options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        answer = self.library.search(query_bundle.query_str, **self.options)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=facts["chunk_id"],
                    text=text,
                    metadata=facts,
                    excluded_embed_metadata_keys=list(facts),
                    excluded_llm_metadata_keys=[key for key in facts if key not in TOLD],
                ),
                score=facts["score"],
            )
            for text, facts in citations(answer)
        ]
