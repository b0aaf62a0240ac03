"""Ask this project's own documentation through LangChain; every answer names the file and lines it is from.

    pip install "marklight[langchain]"
    python examples/langchain_citations.py "how is the index kept up to date"

It runs without a network. In place of a language model stands a function that quotes the first passage.
"""

from __future__ import annotations

import sys
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

import marklight
from marklight.adapters.langchain import MarklightRetriever

DOCS = Path(__file__).parents[1] / "docs"
PROMPT = ChatPromptTemplate.from_template(
    "Answer from these passages, and cite them.\n\n{passages}\n\nQuestion: {question}"
)


def with_sources(documents: list[Document]) -> str:
    """The passages as a prompt holds them: each under its source."""
    return "\n\n".join(f"[{each.metadata['source']}]\n{each.page_content}" for each in documents)


def quote(prompt: PromptValue) -> str:
    """What a real chain has a model for."""
    _, _, passages = prompt.to_string().partition("\n\n")
    return passages.partition("\n\n")[0]


def main(question: str) -> None:
    """Open the library, build the chain, ask it."""
    with marklight.open(DOCS) as library:
        retriever = MarklightRetriever(library=library, options={"limit": 3})
        chain = (
            {"passages": retriever | with_sources, "question": RunnablePassthrough()}
            | PROMPT
            | RunnableLambda(quote)
        )
        print(chain.invoke(question))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "how is the index kept up to date")
