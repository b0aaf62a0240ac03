"""Question and passage to one number with onnxruntime: a model that reads both at once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import ModelError
from marklight.models.opened import MOST_CHARACTERS_A_TOKEN, Opened, clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding


class Pair(NamedTuple):
    """A question with one passage, as the model is given it."""

    ids: list[int]
    types: list[int]
    """0 for the question's tokens, 1 for the passage's."""


class CrossEncoder(Opened):
    """Scores by a model of pairs; its files are opened when the first pair is scored."""

    def score(self, question: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """One number in 0 to 1 for each passage, in order; fewer when the time is over, never none.

        The time begins when the model is open: else the first question would pay for all later ones.
        """
        if not passages:
            return []
        tokenizer, _ = self.tokenizer, self.session
        began = perf_counter()
        limit = self.record.token_limit
        most = limit * MOST_CHARACTERS_A_TOKEN
        asked = clean(question[:most])
        encodings = tokenizer.encode_batch([(asked, clean(each[:most])) for each in passages])

        def timely(place: int) -> float | None:
            late = (perf_counter() - began) * 1000 >= budget_ms
            return None if late and place else self._run(fit(encodings[place], limit))

        # One pair in a run, so that nothing is padded: with a MiniLM of 6 layers and passages of 210 tokens
        # runs of up to 512 and 1024 tokens took 1.1 and 1.5 times as long, and even short ones gained
        # only a twentieth. Side by side, each on one thread, for the same reason as in `onnx.py`.
        pool = ThreadPoolExecutor(min(self.threads, len(passages)))
        scores: list[float] = []
        try:
            # They begin in order, so those that were begun in time are the first ones.
            for score in pool.map(timely, range(len(passages))):
                if score is None:
                    break
                scores.append(score)
        finally:
            pool.shutdown(cancel_futures=True)
        return scores

    def _run(self, pair: Pair) -> float:
        import numpy as np

        session = self.session
        given = {"input_ids": pair.ids}
        for name in session.feeds:
            if name not in ("attention_mask", "token_type_ids"):
                raise ModelError(f"The model {self.name} wants {name}, which is not supported")
            given[name] = pair.types if name == "token_type_ids" else [1] * len(pair.ids)
        try:
            (value,) = session.run(
                [session.outputs[0]],
                {name: np.array([row], np.int64) for name, row in given.items()},
            )
        except Exception as error:  # onnxruntime's own errors share no root but this
            first = str(error).splitlines()[0][:200]
            raise ModelError(f"The model {self.name} cannot score a pair: {first}") from error
        return self._likely(np.asarray(value, np.float64))

    def _likely(self, given: NDArray[np.float64]) -> float:
        """What the model gives for a pair as a number in 0 to 1."""
        import numpy as np

        if given.ndim > 2 or given.size not in (1, 2):
            raise ModelError(
                f"The model {self.name} is not a cross-encoder: it gives "
                f"{' x '.join(map(str, given.shape[1:]))} numbers for a pair, not 1 or 2"
            )
        if not np.isfinite(given).all():
            raise ModelError(f"The model {self.name} gives something that is no number for a pair")
        # Of two the last speaks for the passage; what counts is how far it is above the first.
        first, last = given.flat[0], given.flat[-1]
        return float(np.exp(-np.logaddexp(0.0, -(last - first if given.size == 2 else last))))


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
