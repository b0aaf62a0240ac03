"""Define the answer of a language model with citations: sentences, the passages that they cite, and whether these support them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from marklight.answer import Answer, Hit, index_dict
from marklight.query import query_dict


class Sentence(NamedTuple):
    """A sentence of an answer, or one of its code blocks."""

    text: str
    """The text without citations."""
    lead: str
    """White space, and the mark of a list item, between the sentence before and this one."""
    citations: tuple[int, ...] = ()
    """Numbers of the cited passages, which exist; the first passage is 1."""
    support: float = 0.0
    """Estimated probability that the cited passages support the sentence."""
    problem: str = ""
    """Why the sentence is not supported; empty if it is."""

    @property
    def supported(self) -> bool:
        """Return true if the cited passages support the sentence."""
        return not self.problem

    @property
    def marks(self) -> str:
        """Return the citations as text, such as `[1][3]`."""
        return "".join(f"[{number}]" for number in self.citations)

    def to_dict(self) -> dict[str, Any]:
        """Return the sentence for JSON."""
        return {
            "text": self.text,
            "lead": self.lead,
            "citations": list(self.citations),
            "supported": self.supported,
            "support": round(self.support, 3),
            "problem": self.problem or None,
        }


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer that a language model wrote from the results of a search."""

    search: Answer
    """The search; its hits are the passages that the model got, in the order of their numbers."""
    sentences: Sequence[Sentence] = ()
    removed: Sequence[Sentence] = ()
    """Unsupported sentences that were removed, as `ask.unsupported = "remove"` demands."""
    model: str = ""
    """The model that wrote; empty if none was called."""
    abstained: str | None = None
    """Why there is no answer."""
    incomplete: str = ""
    """Why the answer ends early; empty if it does not."""
    notices: Sequence[str] = ()
    took_ms: float = 0.0

    @property
    def text(self) -> str:
        """Return the answer as text with citations; unsupported sentences are marked."""
        return "".join(f"{each.lead}{sentence_text(each)}" for each in self.sentences).strip()

    @property
    def answered(self) -> bool:
        """Return true if any sentence is supported by the passages that it cites."""
        return any(each.supported for each in self.sentences)

    @property
    def cited(self) -> Sequence[tuple[int, Hit]]:
        """Return the passages that sentences cite, with their numbers."""
        numbers = {number for each in self.sentences for number in each.citations}
        return [(rank, hit) for rank, hit in enumerate(self.search.hits, 1) if rank in numbers]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer for JSON, the same on every surface."""
        found = self.search.to_dict()
        cited = {number for number, _ in self.cited}
        return {
            "query": query_dict(self.search.query),
            "answer": self.text if self.sentences else None,
            "sentences": [each.to_dict() for each in self.sentences],
            "removed": [each.to_dict() for each in self.removed],
            "sources": [{**each, "cited": each["rank"] in cited} for each in found["results"]],
            "abstained": self.abstained,
            "nearest": found["nearest"],
            "model": self.model or None,
            "incomplete": self.incomplete or None,
            "index": index_dict(self.search.index),
            "notices": list(self.notices),
            "took_ms": round(self.took_ms, 1),
        }

    def __str__(self) -> str:
        from marklight import formatting

        places = (
            f"[{number}] {formatting.headed_place(hit.chunk, self.search.several_collections)}"
            for number, hit in self.cited
        )
        body = formatting.visible(self.text) or formatting.one_line(self.abstained or "No answer")
        return "\n".join([body, "", *places]) if self.sentences else body


def sentence_text(sentence: Sentence) -> str:
    """Return a sentence with its citations, marked if they do not support it."""
    end = "\n" if sentence.text.endswith(("```", "~~~")) else " "
    marks = sentence.marks + ("" if sentence.supported else " (unsupported)")
    return f"{sentence.text}{end}{marks.strip()}" if marks else sentence.text
