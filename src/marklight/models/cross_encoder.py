"""Score passages with a cross-encoder: an ONNX model that reads the query and a passage together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from marklight.errors import ModelError
from marklight.models.onnx import MAX_CHARACTERS_PER_TOKEN, OnnxModel, replace_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding


class Pair(NamedTuple):
    """The tokens of a query and one passage, as the model reads them."""

    ids: list[int]
    types: list[int]
    """0 for tokens of the query, 1 for tokens of the passage."""


class CrossEncoder(OnnxModel):
    """A cross-encoder; its files are opened when the first pair is scored."""

    def score(self, query: str, passages: Sequence[str], budget_ms: float) -> list[float]:
        """Return one score from 0 to 1 for each passage, in order; fewer when time runs out, at least one.

        The time starts when the model is open, else the first query would lose its budget to loading.
        """
        if not passages:
            return []
        tokenizer, _ = self.tokenizer, self.session
        began = perf_counter()
        limit = self.record.token_limit
        most = limit * MAX_CHARACTERS_PER_TOKEN
        first = replace_surrogates(query[:most])
        encodings = tokenizer.encode_batch(
            [(first, replace_surrogates(passage[:most])) for passage in passages]
        )

        def score_in_time(position: int) -> float | None:
            late = (perf_counter() - began) * 1000 >= budget_ms
            return None if late and position else self._run(fit(encodings[position], limit))

        # One pair per run, so that nothing is padded: with a MiniLM of 6 layers and passages of 210 tokens,
        # runs of up to 512 and 1024 tokens took 1.1 and 1.5 times as long, and short ones gained only 5 %.
        # Pairs run in parallel, one thread each, for the same reason as in `onnx.py`.
        pool = ThreadPoolExecutor(min(self.threads, len(passages)))
        scores: list[float] = []
        try:
            # Pairs start in order, so those that started in time are the first ones.
            for score in pool.map(score_in_time, range(len(passages))):
                if score is None:
                    break
                scores.append(score)
        finally:
            pool.shutdown(cancel_futures=True)
        return scores

    def _run(self, pair: Pair) -> float:
        import numpy as np

        session = self.session
        feeds = {"input_ids": pair.ids}
        for name in session.inputs:
            if name not in ("attention_mask", "token_type_ids"):
                raise ModelError(
                    f"The model {self.name} needs the input {name}, which is not supported"
                )
            feeds[name] = pair.types if name == "token_type_ids" else [1] * len(pair.ids)
        try:
            (value,) = session.run(
                [session.outputs[0]],
                {name: np.array([row], np.int64) for name, row in feeds.items()},
            )
        except Exception as error:  # onnxruntime's errors share no narrower base class
            first = str(error).splitlines()[0][:200]
            raise ModelError(f"The model {self.name} cannot score a pair: {first}") from error
        return self._probability(np.asarray(value, np.float64))

    def _probability(self, logits: NDArray[np.float64]) -> float:
        """Turn the model's one or two logits into a score from 0 to 1 (sigmoid or softmax)."""
        import numpy as np

        if logits.ndim > 2 or logits.size not in (1, 2):
            raise ModelError(
                f"The model {self.name} is not a cross-encoder: it returns "
                f"{' x '.join(map(str, logits.shape[1:]))} numbers per pair, not 1 or 2"
            )
        if not np.isfinite(logits).all():
            raise ModelError(f"The model {self.name} returns a score that is not a number")
        # Of two logits the last is the one for "relevant".
        first, last = logits.flat[0], logits.flat[-1]
        return float(np.exp(-np.logaddexp(0.0, -(last - first if logits.size == 2 else last))))


def fit(encoding: Encoding, limit: int) -> Pair:
    """Truncate a pair at the token limit: the passage first, the query only beyond half of the limit."""
    sequences = encoding.sequence_ids
    query = [at for at, sequence in enumerate(sequences) if sequence == 0]
    passage = [at for at, sequence in enumerate(sequences) if sequence == 1]
    room = max(0, limit - (len(sequences) - len(query) - len(passage)))
    query_room = max(room // 2, room - len(passage))
    dropped = {*query[query_room:], *passage[max(0, room - len(query[:query_room])) :]}
    kept = [at for at in range(len(sequences)) if at not in dropped]
    ids, types = encoding.ids, encoding.type_ids
    # A session needs at least one token, also where the tokenizer adds no special ones.
    return Pair([ids[at] for at in kept] or [0], [types[at] for at in kept] or [0])
