"""A model that gave back its memory answers as before."""

from __future__ import annotations

import numpy as np

from marklight import models
from marklight.models.query_cache import CachingEmbedder
from marklight.ports import Unloadable


def test_a_model_that_rested_is_opened_again_when_it_is_needed() -> None:
    model = models.load()
    assert isinstance(model, Unloadable)
    before = model.embed_query("how do tokens expire")
    assert "session" in vars(model)
    model.unload()
    assert not {"session", "tokenizer"} & set(vars(model))
    assert np.array_equal(model.embed_query("how do tokens expire"), before)


def test_who_remembers_lets_the_model_rest() -> None:
    model = models.load()
    asked = CachingEmbedder(model)
    asked.embed_query("how do tokens expire")
    asked.unload()
    assert "session" not in vars(model)
