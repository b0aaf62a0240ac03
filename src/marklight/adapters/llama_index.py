"""Retriever for LlamaIndex: `pip install marklight[llama-index]`."""

from __future__ import annotations

import asyncio
from typing import Any

from marklight.adapters import citations, needs_extra
from marklight.library import Library

with needs_extra("llama-index"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

LLM_METADATA = ("source", "title")
"""Metadata that the language model sees: enough to cite a passage."""


class MarklightRetriever(BaseRetriever):
    """Retrieve passages of a library, best first, each with its place and its score."""

    def __init__(self, library: Library, **options: Any) -> None:
        """Take a library from `marklight.open`, and arguments of `library.search` such as limit, mode, tag or min_confidence."""
        super().__init__()
        self.library = library
        self.options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        answer = self.library.search(query_bundle.query_str, **self.options)
        return [
            NodeWithScore(
                node=TextNode(
                    id_=metadata["chunk_id"],
                    text=text,
                    metadata=metadata,
                    excluded_embed_metadata_keys=list(metadata),
                    excluded_llm_metadata_keys=[key for key in metadata if key not in LLM_METADATA],
                ),
                score=metadata["score"],
            )
            for text, metadata in citations(answer)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
