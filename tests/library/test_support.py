"""The check of a sentence against the passages that it cites: features whose values a reader can compute."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from marklight.library.support import (
    KEYWORDS_ONLY,
    WEIGHTS,
    SupportCheck,
    SupportFeatures,
    Weights,
    inverse_frequencies,
    names,
)
from marklight.models.fake import FakeEmbedder
from tests.making import chunk

PASSAGES = [
    chunk("tokens", "An access token expires after 15 minutes. Call `refresh_token` to renew it."),
    chunk("coffee", "Grind the beans finely for espresso."),
]


def equal(words: Sequence[str]) -> Mapping[str, float]:
    return dict.fromkeys(words, 1.0)


def check(embedder: FakeEmbedder | None = None) -> SupportCheck:
    return SupportCheck(PASSAGES, embedder, equal)


def test_coverage_is_the_share_of_terms_in_the_cited_passages() -> None:
    sentence = "Access tokens expire weekly."  # access, token, expire; not weekly
    assert check().features(sentence, [1]).coverage == 3 / 4
    assert check().features(sentence, [2]).coverage == 0
    assert check().features("Access tokens and espresso.", [1, 2]).coverage == 1


def test_rare_terms_count_more() -> None:
    idf = {"access": 1.0, "zeppelin": 3.0}
    weighted = SupportCheck(PASSAGES, None, lambda words: {word: idf[word] for word in words})
    assert weighted.features("Access zeppelin", [1]).coverage == 1 / 4


def test_a_word_that_no_document_has_is_the_rarest() -> None:
    found = inverse_frequencies(["common", "rare", "new"], {"common": 90, "rare": 1}, 100)
    assert found["common"] < found["rare"] < found["new"]
    assert found["common"] == math.log1p(100.5 / 90.5)


def test_a_sentence_of_stop_words_is_covered() -> None:
    assert check().features("It is so.", [1]).coverage == 1


def test_similarity_is_that_of_the_nearest_sentence() -> None:
    found = check(FakeEmbedder()).features("An access token expires after 15 minutes.", [1])
    assert found.similarity == pytest.approx(1.0, abs=1e-5)
    assert check().features("An access token expires.", [1]).similarity is None


def test_numbers_and_identifiers_must_be_in_a_cited_passage() -> None:
    assert not check().features("It expires after 15 minutes.", [1]).missing_name
    assert check().features("It expires after 5 minutes.", [1]).missing_name
    assert not check().features("Call refresh_token.", [1]).missing_name
    assert check().features("Call revoke_token.", [1]).missing_name
    assert check().features("It expires after 15 minutes.", [2]).missing_name


def test_a_quote_with_another_word_or_a_negation_is_altered() -> None:
    quote = "An access token expires after 15 minutes."
    assert not check().features(quote, [1]).altered_quote
    assert check().features(quote.replace("access", "identity"), [1]).altered_quote
    assert check().features(quote.replace("expires", "not expires"), [1]).altered_quote
    assert not check().features("Access tokens live shortly.", [1]).altered_quote


def test_names_are_words_with_a_digit_an_underscore_a_capital_or_a_dot_inside() -> None:
    text = "In v1.27 call getUser or get_user of api.example.com on port 80. Then Wait."
    assert names(text) == {"v1.27", "getuser", "get_user", "api.example.com", "80"}


def test_the_probability_is_logistic() -> None:
    weights = Weights(-1.0, 2.0, 3.0, -4.0, -5.0, 0.5)
    features = SupportFeatures(0.5, 0.2, True, False)  # -1 + 1 + 0.6 - 4
    assert features.probability(weights) == pytest.approx(1 / (1 + math.exp(3.4)))


def test_a_quote_is_supported_and_an_unrelated_sentence_is_not() -> None:
    assert check().support("An access token expires after 15 minutes.", [1])[1]
    assert not check().support("Penguins eat krill in the Antarctic.", [1])[1]


@pytest.mark.parametrize("weights", [KEYWORDS_ONLY, *WEIGHTS.values()])
def test_full_coverage_passes_and_a_missing_name_never_does(weights: Weights) -> None:
    similarity = 1.0 if weights.similarity else None
    quote = SupportFeatures(1.0, similarity, False, False)
    assert quote.probability(weights) > weights.threshold
    assert SupportFeatures(0.0, 0.5, True, False).probability(weights) < weights.threshold


def test_the_weights_are_those_that_were_measured() -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "results" / "support.json"
    figures = json.loads(file.read_text())
    assert KEYWORDS_ONLY._asdict() == figures["keywords only"]["weights"]
    for model, weights in WEIGHTS.items():
        assert weights._asdict() == figures[model]["weights"]


def test_a_long_passage_is_compared_in_bounded_time() -> None:
    long = chunk("long", "Word upon word. " * 20_000)
    found = SupportCheck([long], FakeEmbedder(), equal).features("Word upon word.", [1])
    assert found.similarity == pytest.approx(1.0, abs=1e-5)
