"""Answers with sources: search, let a language model write from the passages, and check every sentence against those it cites."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from marklight.answer import Answer
from marklight.citations import CitedAnswer, Sentence
from marklight.errors import ModelError, ModelServerError, NotConfigured
from marklight.library.ask_prompt import Piece, ResponseParser, build_prompt, is_no_answer
from marklight.library.search import search
from marklight.library.settings_tables import Ask
from marklight.library.support import SupportCheck, inverse_frequencies
from marklight.library.validation import FILTERS, document_query
from marklight.place import complete_commands
from marklight.ports import Embedder, LanguageModel, Prompt
from marklight.settings import user_file

if TYPE_CHECKING:
    from marklight.library import Library


Emit = Callable[[Answer | Sentence], None]
"""Receives the search as soon as it is finished, then each sentence as soon as it is checked."""

NOT_CONFIGURED = "No language model is configured, so `ask` is off"
CONFIGURE = (
    'Set ask.name = "ollama:MODEL", or ask.name = "openai:MODEL" and ask.address, in {file}.'
    " `marklight search` needs none"
)
NO_CITATION = "It cites no passage"
UNSUPPORTED = "The cited passage does not support it"
NOTHING_SUPPORTED = "The passages support no sentence of the answer"


def ask(
    library: Library,
    query: str,
    *,
    limit: int | None,
    max_tokens: int | None,
    model: LanguageModel | None,
    emit: Emit | None,
    check_cancelled: Callable[[], None],
    **options: Any,
) -> CitedAnswer:
    """Search, and let the model answer from the results; it is not called if the search abstains.

    The model is the configured one unless the caller has one of its own.
    """
    started = time.perf_counter()
    settings = library.settings.build(Ask, "ask")
    writer = _writer(library, model)
    emit = emit or (lambda _: None)
    found = search(
        library,
        query,
        limit=limit or settings.passages,
        check_cancelled=check_cancelled,
        **options,
    )
    if found.hits:
        prompt, hits = build_prompt(
            query,
            found.hits,
            found.several_collections,
            settings.passage_tokens,
            max_tokens or settings.answer_tokens,
        )
        found = replace(found, hits=tuple(hits))
        emit(found)
        draft = _Draft(_check(library, found), len(hits), settings.unsupported == "remove", emit)
        draft.write(writer, prompt, check_cancelled)
        sent = library.models.first_use_notices(generating=model is None)
        notices = [
            *found.notices,
            *(complete_commands(each, library.place.folder) for each in sent),
        ]
        answer = draft.answer(found, writer.name, notices)
    else:
        emit(found)
        reason = found.abstained or "No passage matches the query"
        answer = CitedAnswer(found, abstained=reason, notices=found.notices)
    return replace(answer, took_ms=(time.perf_counter() - started) * 1000)


def validate(
    library: Library, query: str, options: Mapping[str, Any], model: LanguageModel | None = None
) -> None:
    """Raise an error if there is no model or if an argument is invalid, before anything else is done."""
    _writer(library, model)
    filters = {name: options[name] for name in FILTERS}
    document_query(library, query, hypothesis=options["hypothesis"], **filters)


def _writer(library: Library, model: LanguageModel | None) -> LanguageModel:
    """Return the model of the caller, or the configured one."""
    writer = model or library.models.generator
    if writer is None:
        raise NotConfigured(NOT_CONFIGURED, CONFIGURE.format(file=user_file()))
    return writer


@dataclass(slots=True)
class _Draft:
    """An answer while it is written."""

    check: SupportCheck
    passages: int
    """Number of passages that the model got."""
    removes: bool
    """True to remove unsupported sentences rather than mark them."""
    emit: Emit
    sentences: list[Sentence] = field(default_factory=list)
    removed: list[Sentence] = field(default_factory=list)
    no_answer: bool = False
    incomplete: str = ""

    def write(
        self, model: LanguageModel, prompt: Prompt, check_cancelled: Callable[[], None]
    ) -> None:
        """Add the sentences of the response as they arrive; a failure after the first one ends the answer early."""
        parser = ResponseParser()
        try:
            with closing(model.generate(prompt, check_cancelled)) as response:
                for text in response:
                    if not self._add(parser.feed(text)):
                        return
        except ModelServerError as error:
            if not self.sentences and not self.removed:
                raise
            self.incomplete = error.message
        self._add(parser.finish(complete=not self.incomplete))

    def _add(self, pieces: Iterable[Piece]) -> bool:
        """Check and emit sentences; return false if the model declares that there is no answer."""
        for piece in pieces:
            if not self.sentences and not self.removed and is_no_answer(piece.text):
                self.no_answer = True
                return False
            sentence = self._checked(piece)
            if self.removes and not sentence.supported:
                self.removed.append(sentence)
                continue
            self.sentences.append(sentence)
            self.emit(sentence)
        return True

    def _checked(self, piece: Piece) -> Sentence:
        citations = tuple(number for number in piece.cited if 1 <= number <= self.passages)
        sentence = Sentence(piece.text, piece.lead, citations)
        if not citations:
            missing = ", ".join(map(str, piece.cited))
            problem = (
                f"It cites passage {missing}, which does not exist" if missing else NO_CITATION
            )
            return sentence._replace(problem=problem)
        support, supported = self.check.support(piece.text, citations)
        return sentence._replace(support=support, problem="" if supported else UNSUPPORTED)

    def answer(self, found: Answer, model: str, notices: Sequence[str]) -> CitedAnswer:
        """Return the finished answer."""
        abstained = None
        if self.no_answer:
            abstained = f"The passages do not answer the query, according to {model}"
        elif not self.sentences:
            abstained = NOTHING_SUPPORTED if self.removed else f"{model} wrote nothing"
        elif not any(each.supported for each in self.sentences):
            notices = [*notices, NOTHING_SUPPORTED]
        if self.incomplete:
            notices = [*notices, f"The answer is incomplete: {self.incomplete}"]
        return CitedAnswer(
            found, self.sentences, self.removed, model, abstained, self.incomplete, notices
        )


def _check(library: Library, found: Answer) -> SupportCheck:
    """Return the check of sentences against the passages of a search."""
    language = found.query.languages[0]

    def idf(words: Sequence[str]) -> Mapping[str, float]:
        # A snapshot for each call: one that lasts as long as the model writes would keep old data on the disk.
        with library.engine.snapshot() as snapshot:
            frequencies = snapshot.vocabulary.document_frequencies(words)
        return inverse_frequencies(words, frequencies, found.index.documents)

    chunks = [hit.chunk for hit in found.hits]
    return SupportCheck(chunks, _embedder(library, language), idf, language)


def _embedder(library: Library, language: str) -> Embedder | None:
    """Return the embedding model that compares texts of a language; None if there is none."""
    try:
        first = library.models.embedder
        if first is None or not first.languages or language in first.languages:
            return first
        second = library.models.multilingual({language: 1})
    except ModelError:
        return None
    return second if second is not None and language in second.languages else None
