"""Encoding of results for clients is lossless."""

from __future__ import annotations

import json

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as some

from marklight import answer, model, query, report, results
from marklight.lazy import _compile_init
from marklight.surfaces.daemon.client import decode, encode
from tests.making import chunk

some.register_type_strategy(float, some.floats(allow_nan=False, allow_infinity=False))
# hypothesis reads the signature of `__init__`, which is compiled when the first instance is made.
for module in (model, query, answer, report, results):
    for kind in vars(module).values():
        if isinstance(kind, type) and "__dataclass_fields__" in vars(kind):
            type.__setattr__(kind, "__init__", _compile_init(kind, True))
# Named in the types of an answer, and not loaded for one.
vars(answer).setdefault("Commits", results.Commits)
RESULTS = some.one_of(
    *(
        some.from_type(kind)
        for kind in (
            answer.Answer,
            results.Commit,
            results.Commits,
            report.Extract,
            report.Outline,
            report.Links,
            report.Related,
            report.Report,
        )
    )
)


@settings(max_examples=30, phases=[Phase.generate])
@given(RESULTS)
def test_a_result_round_trips(result: object) -> None:
    sent = json.loads(json.dumps(encode(result)))
    back = decode(sent)
    assert type(back) is type(result)
    assert encode(back) == encode(result)


def test_a_score_keeps_all_digits() -> None:
    third = answer.Hit(chunk(), 1 / 3)
    assert decode(json.loads(json.dumps(encode(third)))) == third


@pytest.mark.parametrize("kind", ["Path", "datetime", "replace", "__name__", "print", "Any"])
def test_other_types_are_not_decoded(kind: str) -> None:
    with pytest.raises(ValueError, match="Not a result type"):
        decode([kind, "x"])
