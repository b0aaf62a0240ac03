"""Retriever for LangChain: `pip install marklight[langchain]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marklight.adapters import citations, needs_extra
from marklight.library import Library

with needs_extra("langchain"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.prompts import PromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool, create_retriever_tool
    from pydantic import ConfigDict, Field


class MarklightRetriever(BaseRetriever):
    """Retrieve passages of a library, best first, each with its place and its score."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    library: Library
    """A library from `marklight.open`; the caller closes it."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of `library.search`, such as limit, mode, tag or min_confidence."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the framework passes it
        **more: Any,
    ) -> list[Document]:
        answer = self.library.search(query, **{**self.options, **more})
        return [
            Document(page_content=text, metadata=metadata, id=metadata["chunk_id"])
            for text, metadata in citations(answer)
        ]

    def tool(
        self, name: str = "search_documents", description: str = "Search the user's documents."
    ) -> BaseTool:
        """Return a tool for agents, whose text has the source of each passage above it."""
        cited = PromptTemplate.from_template("[{source}]\n{page_content}")
        return create_retriever_tool(self, name, description, document_prompt=cited)
