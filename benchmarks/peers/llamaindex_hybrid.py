"""LlamaIndex: a vector store in memory and its BM25 retriever, fused by reciprocal rank, as its documentation shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_index.core import Settings, StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.retrievers.bm25 import BM25Retriever

from benchmarks.peers._program import DEPTH, Collection, Search, Tool, model_folder, run

Settings.embed_model = HuggingFaceEmbedding(model_folder(), device="cpu")
Settings.llm = MockLLM()


def nodes(collection: Collection) -> list[TextNode]:
    pairs = zip(collection.documents, collection.passages, strict=True)
    return [TextNode(text=text, metadata={"document": name}) for name, text in pairs]


def build(collection: Collection, place: Path) -> None:
    VectorStoreIndex(nodes(collection)).storage_context.persist(str(place))


def load(_: Collection, place: Path) -> Search:
    index: Any = load_index_from_storage(StorageContext.from_defaults(persist_dir=str(place)))
    keywords = BM25Retriever.from_defaults(docstore=index.docstore, similarity_top_k=DEPTH)
    fused = QueryFusionRetriever(
        [index.as_retriever(similarity_top_k=DEPTH), keywords],
        similarity_top_k=DEPTH,
        num_queries=1,
        mode=FUSION_MODES.RECIPROCAL_RANK,
        use_async=False,
    )

    def search(text: str, limit: int) -> list[str]:
        return [hit.node.metadata["document"] for hit in fused.retrieve(text)[:limit]]

    return search


run(Tool(build, load, None))
