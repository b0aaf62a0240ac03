"""Question and passage to one number with onnxruntime: a model that reads both at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import ModelError
from marklight.models.opened import MOST_CHARACTERS_A_TOKEN, Opened, clean, threads_for
from marklight.models.record import ModelRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding

GROUP_TOKENS = 512
"""Tokens in one run at most, padding counted: long passages go alone, short ones share a run."""


class Pair(NamedTuple):
    """A question with one passage, as the model is given it."""

    ids: list[int]
    types: list[int]
    """0 for the question's tokens, 1 for the passage's."""


class CrossEncoder:
    """Scores by a model of pairs; its files are opened when the first pair is scored."""

    def __init__(
        self,
        record: ModelRecord,
        model: Callable[[], bytes | str],
        tokenizer: Callable[[], bytes],
        threads: int | None = None,
    ) -> None:
        self.record = record
        self._opened = Opened(record.name, model, tokenizer)
        self._threads = threads_for(threads)

    def __repr__(self) -> str:
        return f"CrossEncoder({self.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    def score(self, question: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """One number in 0 to 1 for each passage, in order; fewer when the time is over, never none.

        The time begins when the model is open: else the first question would pay for all later ones.
        """
        if not passages:
            return []
        masked = "attention_mask" in self._opened.session.feeds
        tokenizer = self._opened.tokenizer
        began = perf_counter()

        most = self.record.token_limit * MOST_CHARACTERS_A_TOKEN
        asked = clean(question[:most])
        encodings = tokenizer.encode_batch([(asked, clean(each[:most])) for each in passages])
        pairs = [fit(encoding, self.record.token_limit) for encoding in encodings]

        def timely(group: list[Pair]) -> list[float]:
            late = (perf_counter() - began) * 1000 >= budget_ms
            return [] if late and group is not groups[0] else self._run(group)

        # Groups begin in order, so those that were begun in time are the first ones. Side by side, each
        # on one thread, for the same reason as in `onnx.py`.
        groups = grouped(pairs, padded=masked)
        pool = ThreadPoolExecutor(min(self._threads, len(groups)))
        try:
            scores: list[float] = []
            for found in pool.map(timely, groups):
                if not found:
                    break
                scores += found
        finally:
            pool.shutdown(cancel_futures=True)
        return scores

    def _run(self, group: list[Pair]) -> list[float]:
        import numpy as np

        session = self._opened.session
        if unknown := set(session.feeds) - {"attention_mask", "token_type_ids"}:
            raise ModelError(f"The model {self.name} wants {min(unknown)}, which is not supported")
        shape = len(group), max(len(pair.ids) for pair in group)
        given = {name: np.zeros(shape, np.int64) for name in ("input_ids", *session.feeds)}
        for row, pair in enumerate(group):
            length = len(pair.ids)
            # What pads a row does not matter, as the mask hides it.
            given["input_ids"][row, :length] = pair.ids
            if "attention_mask" in given:
                given["attention_mask"][row, :length] = 1
            if "token_type_ids" in given:
                given["token_type_ids"][row, :length] = pair.types
        try:
            (value,) = session.run([session.outputs[0]], given)
        except Exception as error:  # onnxruntime's own errors share no root but this
            first = str(error).splitlines()[0][:200]
            raise ModelError(f"The model {self.name} cannot score a pair: {first}") from error
        return self._likely(np.asarray(value, np.float64), len(group))

    def _likely(self, given: NDArray[np.float64], pairs: int) -> list[float]:
        """What the model gives for each pair as a number in 0 to 1."""
        import numpy as np

        logits = given.reshape(pairs, -1) if given.ndim <= 2 else given
        if logits.ndim > 2 or logits.shape[1] not in (1, 2):
            raise ModelError(
                f"The model {self.name} is not a cross-encoder: it gives "
                f"{' x '.join(map(str, given.shape[1:]))} numbers for a pair, not 1 or 2"
            )
        if not np.isfinite(logits).all():
            raise ModelError(f"The model {self.name} gives something that is no number for a pair")
        # Of two the last speaks for the passage; what counts is how far it is above the other.
        odds = logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0.0)
        likely: list[float] = np.exp(-np.logaddexp(0.0, -odds)).tolist()
        return likely


def fit(encoding: Encoding, limit: int) -> Pair:
    """At most so many tokens: the passage is cut, the question only where it takes more than half."""
    own = encoding.sequence_ids
    question = [at for at, of in enumerate(own) if of == 0]
    passage = [at for at, of in enumerate(own) if of == 1]
    room = max(0, limit - (len(own) - len(question) - len(passage)))
    question_room = max(room // 2, room - len(passage))
    dropped = {*question[question_room:], *passage[max(0, room - len(question[:question_room])) :]}
    kept = [at for at in range(len(own)) if at not in dropped]
    ids, types = encoding.ids, encoding.type_ids
    # A model needs something to look at, even where a tokenizer adds no special tokens.
    return Pair([ids[at] for at in kept] or [0], [types[at] for at in kept] or [0])


def grouped(pairs: Sequence[Pair], *, padded: bool, most: int = GROUP_TOKENS) -> list[list[Pair]]:
    """Pairs that go into one run, in their order; of one length where the model cannot hide padding."""
    groups: list[list[Pair]] = []
    longest = 0
    for pair in pairs:
        length = len(pair.ids)
        together = bool(groups) and (padded or length == longest)
        if together and (len(groups[-1]) + 1) * max(longest, length) <= most:
            groups[-1].append(pair)
            longest = max(longest, length)
        else:
            groups.append([pair])
            longest = length
    return groups
